// Package command is the command line of reeve: its commands, flags, texts and exit codes. It owns nothing: a command finds its cluster with
// package target, does one thing, and prints a document of package output.
package command
