package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { VerifyTestMain(m) }

// tests is a test program.
type tests func() int

func (t tests) Run() int { return t() }

// A goroutine that ends after goleak alone would have given up is no leak.
func TestSlowEnd(t *testing.T) {
	result := -1
	VerifyTestMain(tests(func() int {
		go func() { time.Sleep(time.Second) }()
		return 0
	}), goleak.Cleanup(func(code int) { result = code }))
	if result != 0 {
		t.Errorf("the program exits with %d", result)
	}
}

func TestLeak(t *testing.T) {
	end, ended := make(chan struct{}), make(chan struct{})
	result := -1
	goleak.VerifyTestMain(patient{tests(func() int {
		go func() {
			defer close(ended)
			<-end
		}()
		return 0
	}), 0}, goleak.Cleanup(func(code int) { result = code }))
	if result != 1 {
		t.Errorf("the program exits with %d", result)
	}
	close(end)
	<-ended
}

// Failed tests are the news. What they left behind is not waited for.
func TestFailure(t *testing.T) {
	result := -1
	VerifyTestMain(tests(func() int { return 3 }), goleak.Cleanup(func(code int) { result = code }))
	if result != 3 {
		t.Errorf("the program exits with %d", result)
	}
}
