// Package proc finds, signals and waits for processes of the machine by /proc and pidfds. It owns nothing.
package proc
