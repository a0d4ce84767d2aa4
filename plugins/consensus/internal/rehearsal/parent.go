package rehearsal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/limits"
)

// Argument is the first one of the process that rehearses.
const Argument = "rehearse-snapshot"

// ErrFailed says that a snapshot could not be restored, or is not what it should be.
var ErrFailed = errors.New("the snapshot was taken, and cannot be restored")

// Plan is what to rehearse.
type Plan struct {
	// Directory has the snapshot, at Path. The restored etcd, and Records, are made below it.
	Directory string `json:"directory"`
	// Prefixes are those whose keys are counted, by the names under which the counts come back.
	Prefixes map[string]string `json:"prefixes"`
	// Records is the prefix of the keys that are written to RecordsPath.
	Records string `json:"records"`
	// Revision is the snapshot's.
	Revision int64 `json:"revision"`
	// Memory is how many bytes the process may use besides the pages of files; Within is how long it may take.
	Memory int64         `json:"memory"`
	Within time.Duration `json:"within"`
}

// Found is what a restored snapshot holds.
type Found struct {
	// Keys is how many keys there are in all, and Counts how many of them under the prefixes of the plan.
	Keys   int64            `json:"keys"`
	Counts map[string]int64 `json:"counts"`
	// Records is how many keys were written to RecordsPath.
	Records int64 `json:"records"`
}

// Path is where the snapshot is expected: the database and its SHA-256, as etcd's own snapshots are.
func Path(directory string) string { return filepath.Join(directory, "snapshot") }

// RecordsPath is where the keys of Plan.Records are, each a consensusv1.SnapshotRecord behind its size.
func RecordsPath(directory string) string { return filepath.Join(directory, "records") }

// said is how much of what the process says is kept.
const said = 4 << 10

// Run rehearses in a process of its own. The error is ErrFailed by errors.Is if the process came to an end by itself and found nothing good.
func Run(ctx context.Context, plan Plan) (*Found, error) {
	input, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("rehearse the snapshot: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, plan.Within)
	defer cancel()
	output, complaints := &head{most: 1 << 20}, &head{most: said}
	// With this the process is made in the one way that a role has which has given processes up (the seccomp filter of core/sandbox).
	pidfd := -1
	command := exec.CommandContext(bounded, "/proc/self/exe", Argument)
	command.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", fmt.Sprintf("GOMEMLIMIT=%d", plan.Memory-plan.Memory/8)}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), output, complaints
	command.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, PidFD: &pidfd}
	// The process ends with the thread that started it.
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- command.Run()
	}()
	err = <-ended
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%w: its rehearsal was not over within %s", ErrFailed, plan.Within)
	case errors.As(err, &exit):
		return nil, fmt.Errorf("%w: %s", ErrFailed, reasonOf(exit, complaints.String(), plan.Memory))
	case err != nil:
		return nil, fmt.Errorf("rehearse the snapshot: start the process for it: %w", err)
	}
	found := new(Found)
	if err := json.Unmarshal(output.Bytes(), found); err != nil {
		return nil, fmt.Errorf("%w: what its rehearsal said cannot be read: %w", ErrFailed, err)
	}
	return found, nil
}

// reasonOf says why the process ended.
func reasonOf(exit *exec.ExitError, complaints string, memory int64) string {
	// Go's runtime, the kernel, the C library, and the race detector each say it in other words.
	for _, said := range []string{"out of memory", "allocate", "pthread_create failed", "new OS thread"} {
		if !strings.Contains(complaints, said) {
			continue
		}
		return fmt.Sprintf("its rehearsal needs more than %d MiB of memory: raise the role's limit of memory", memory>>20)
	}
	if lines := strings.Split(strings.TrimSpace(complaints), "\n"); lines[0] != "" {
		return limits.Cut(lines[0], 512)
	}
	return exit.Error()
}

// head keeps what is written first.
type head struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (h *head) Write(part []byte) (int, error) {
	_, _ = h.Buffer.Write(part[:min(len(part), h.most-h.Len())])
	return len(part), nil
}

var _ io.Writer = (*head)(nil)

// Remove removes what a rehearsal left.
func Remove(directory string) error {
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove what is left of the rehearsal of a snapshot: %w", err)
	}
	return nil
}
