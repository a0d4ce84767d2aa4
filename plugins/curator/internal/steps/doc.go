// Package steps names the transactions of a curator: see sdk/checkpoint.
package steps
