// Package guestapi is what a test and the guest that it runs say to each other: calls of net/rpc over a port of virtio-serial. It carries nothing but what a
// test could do at the guest's console: run programs, read and write files, switch the machine off.
package guestapi

import "time"

// Port is the name of the virtio-serial port.
const Port = "dev.reeve.e2e"

// Service is the name of the guest's service.
const Service = "Guest"

// Hello says what machine it is.
type Hello struct {
	// Uptime is how long the guest's kernel has been running.
	Uptime time.Duration
	// Kernel is its release.
	Kernel string
}

// Command is a program to run.
type Command struct {
	// Arguments begin with the program.
	Arguments []string
	Stdin     []byte
	// Timeout ends the program; 0: a minute.
	Timeout time.Duration
	// Log is for Start: the file to which the program's output is appended.
	Log string
}

// Result is how a program ended.
type Result struct {
	Stdout, Stderr []byte
	// Code is the exit status, -1 for a program that a signal ended.
	Code int
	// Signal is what ended it; empty: it ended by itself.
	Signal string
	// Took is how long it ran, by the guest's clock that nobody sets.
	Took time.Duration
}

// File is the content of a file, or what to write into one.
type File struct {
	Path    string
	Content []byte
	Mode    uint32
}

// Tail is what of a file is wanted.
type Tail struct {
	Path string
	// Offset is where it begins.
	Offset int64
}

// Read is what there was of it.
type Read struct {
	Content []byte
	// Uptime is how long the guest's kernel has been running.
	Uptime time.Duration
}

// Wait is for a program that was started.
type Wait struct {
	PID     int
	Timeout time.Duration
}

// End is how the machine is to stop.
type End int

// PowerOff is an orderly one: what was written is on the disks.
const PowerOff End = iota
