// Package desired reads the document in which the cluster API says what the store should be. It owns no state.
package desired
