// Package eintr repeats system calls that a signal interrupted. Package os does that by itself; golang.org/x/sys/unix does not.
package eintr
