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
