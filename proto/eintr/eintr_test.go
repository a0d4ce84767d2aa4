package eintr_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

func TestRetry(t *testing.T) {
	for _, last := range []error{nil, unix.EBADF} {
		calls := 0
		got, err := eintr.Retry(func() (int, error) {
			if calls++; calls < 3 {
				return -1, &os.PathError{Err: unix.EINTR}
			}
			return calls, last
		})
		if got != 3 || !errors.Is(err, last) {
			t.Errorf("after two interruptions: %d, %v", got, err)
		}
	}
}
