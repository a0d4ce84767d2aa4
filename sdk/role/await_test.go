package role

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A process that its core left behind before it started anything ends by itself.
func TestNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var stderr bytes.Buffer
		code := await(&server{started: make(chan struct{}), end: make(chan int, 1)}, startTime, nil, nil, &stderr)
		if code != 1 || time.Since(began) != startTime || !strings.Contains(stderr.String(), "no role was started") {
			t.Errorf("status %d after %s: %s", code, time.Since(began), stderr.String())
		}
	})
}
