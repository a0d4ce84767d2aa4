// Package tutorial follows the pages of docs/tutorial word for word, on a machine that has Go, git and make, and nothing else that compiles. It has no code of its own.
package tutorial
