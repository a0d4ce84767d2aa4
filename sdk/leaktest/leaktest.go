package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// VerifyTestMain is goleak.VerifyTestMain with ten seconds for the goroutines to end. It returns only if goleak.Cleanup is given and does not exit.
// The wait ignores the options: a goroutine that an option ignores and that does not end costs the ten seconds.
func VerifyTestMain(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(patient{m, 10 * time.Second}, options...)
}

// patient runs the tests and waits for their goroutines, up to patience.
type patient struct {
	goleak.TestingM
	patience time.Duration
}

func (p patient) Run() int {
	code := p.TestingM.Run()
	if code != 0 {
		return code
	}
	// Find pauses between its looks.
	for end := time.Now().Add(p.patience); time.Now().Before(end) && goleak.Find() != nil; {
	}
	return 0
}

// VerifyNone is goleak.VerifyNone with ten seconds for the goroutines to end.
func VerifyNone(t testing.TB, options ...goleak.Option) {
	t.Helper()
	err := goleak.Find(options...)
	// Find pauses between its looks.
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); err = goleak.Find(options...) {
	}
	if err != nil {
		t.Error(err)
	}
}
