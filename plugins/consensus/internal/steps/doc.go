// Package steps names what a member of the consensus store keeps, on disk and in the store, each time that it does: see sdk/checkpoint.
package steps
