// Package eintr repeats system calls that a signal interrupted. Package os does that by itself; golang.org/x/sys/unix does not.
package eintr

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Retry calls a function until its error is not EINTR.
func Retry[T any](call func() (T, error)) (T, error) {
	for {
		result, err := call()
		if !errors.Is(err, unix.EINTR) {
			return result, err
		}
	}
}
