package plugin

import (
	"errors"
	"os/exec"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/sandbox"
)

// A call whose connection broke is explained by the end of the process, unless the core has ended it.
func TestWhyASessionFailed(t *testing.T) {
	told := errors.New("refuses Start")
	for name, test := range map[string]struct {
		script string
		code   codes.Code
		exited bool
	}{
		"it ended by itself":            {"exit 3", codes.Unavailable, true},
		"it was ended by its core":      {"kill -KILL $$", codes.Unavailable, false},
		"another signal ended it":       {"kill -ABRT $$", codes.Unavailable, true},
		"it refused, and ended later":   {"exit 3", codes.Internal, false},
		"it lives":                      {"", codes.Unavailable, false},
		"it is of the core before this": {"adopted", codes.Unavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, end := newProcess(0, 0)
			defer end()
			if test.script != "adopted" {
				p.child = new(sandbox.Child)
			}
			if test.script != "" {
				program := exec.Command("sh", "-c", test.script)
				_ = program.Run() // its state says how it ended
				p.state = program.ProcessState
				end()
			}
			err := (&session{process: p}).why(breaks(status.Error(test.code, "EOF"), told))
			if exited := errors.Is(err, ErrExited); exited != test.exited || !exited && !errors.Is(err, told) {
				t.Errorf("it says: %v", err)
			}
		})
	}
}
