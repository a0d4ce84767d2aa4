// Package howto follows the pages of docs/how-to about clusters of several nodes as their readers do: every command that a page shows is run, in its order, on machines of
// a lab. It has no code of its own.
package howto
