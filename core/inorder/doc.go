// Package inorder has tests run their cases in the same order each time. It owns no state.
package inorder
