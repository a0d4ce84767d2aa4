package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/confine"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Config configures Run.
type Config struct {
	// Log gets what does not interest the caller.
	Log hclog.Logger
	// Requests yields one confine.Request. Its end ends everything that was started.
	Requests io.Reader
	// Answers receives every confine.Answer.
	Answers io.Writer
	// Stdout and Stderr are the process's. They are closed once it has them.
	Stdout, Stderr *os.File
	// Ranges is the file in which user IDs are reserved (users.Reserve).
	Ranges string
	// Defaults are the limits of a role without granted ones.
	Defaults sandbox.Defaults
}

const (
	// linger is how long processes that the role left may take to end by themselves. On a busy machine that takes seconds.
	linger = 10 * time.Second
	// pause is the time between two looks at these processes. The kernel does not report the end of a process that is not a child.
	pause = 5 * time.Millisecond
	// buryEvery is the time between two calls of Child.Bury while a killed process does not end.
	buryEvery = 2 * time.Second
)

// Run does what the request says and answers. It returns when the process and everything that it left behind have ended: by themselves, or because
// the requests or ctx ended. The error is the caller's or the machine's; failures of the process are in the answers.
func Run(ctx context.Context, c Config) error {
	var request confine.Request
	decoder := json.NewDecoder(c.Requests)
	if err := decoder.Decode(&request); err != nil {
		return fmt.Errorf("confine: the request: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// The end of the requests means that the caller ended, or wants the end. This goroutine ends with this process.
		_, _ = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), c.Requests))
		cancel()
	}()
	// Orphans become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: become a child subreaper: %w", err)
	}
	answers := json.NewEncoder(c.Answers)
	child, started, err := start(ctx, c, &request)
	_ = c.Stdout.Close()
	_ = c.Stderr.Close()
	if err != nil {
		return answers.Encode(confine.Answer{Refused: &confine.Refused{Reason: err.Error(), Executable: errors.Is(err, sandbox.ErrExec)}})
	}
	err = answers.Encode(confine.Answer{Started: started})
	if err != nil {
		cancel() // nobody listens any more
	}
	ended := await(ctx, child)
	err = errors.Join(err, answers.Encode(confine.Answer{Ended: ended}))
	return errors.Join(err, answers.Encode(confine.Answer{Left: &confine.Left{Processes: endDescendants(ctx)}}))
}

// start starts the process in its sandbox.
func start(ctx context.Context, c Config, request *confine.Request) (*sandbox.Child, *confine.Started, error) {
	manifest, err := request.RoleManifest()
	if err != nil {
		return nil, nil, fmt.Errorf("the manifest: %w", err)
	}
	users, err := users.Reserve(c.Ranges, filepath.Join(request.Own, "users.json"), request.Own, nil)
	if err != nil {
		return nil, nil, err
	}
	// The next sandbox of the same owner may be started while this one ends, and has the same users: what it finds in its directories belongs to them.
	defer func() { _ = users.Close() }()
	remit, err := plugin.RemitOf(manifest, &clusterv1.RoleGrants{Role: manifest.GetName(), Grants: manifest.GetGrants()}, users)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(chownToRole(remit, request.Private), open(remit, request.Passages)); err != nil {
		return nil, nil, err
	}
	executable, done, err := storedExecutable(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	host, err := sandbox.Probe(c.Log, nil)
	if err != nil {
		return nil, nil, err
	}
	policy := plugin.PolicyOf(remit, c.Defaults, request.Private, request.Passages)
	// It must not outlive this process, whatever its manifest says.
	policy.EndsWithCore = true
	child, err := host.Start(policy, sandbox.Command{
		Executable: executable.File(), Name: request.Name, Env: request.Environment, Stdout: c.Stdout, Stderr: c.Stderr,
	})
	if err != nil {
		return nil, nil, err
	}
	started := &confine.Started{PID: child.Process.Pid, UID: remit.UID}
	for _, missing := range host.Missing(policy) {
		started.Missing = append(started.Missing, confine.Missing{Part: missing.GetName(), Reason: missing.GetReason()})
	}
	return child, started, nil
}

// storedExecutable returns the executable from a copy that the role cannot read, as a node keeps it.
func storedExecutable(ctx context.Context, request *confine.Request) (*store.Executable, func(), error) {
	executables, err := store.Open(filepath.Join(request.Own, "executables"))
	if err != nil {
		return nil, nil, err
	}
	executable, err := executables.Open(request.Digest)
	var missing *store.MissingError
	if errors.As(err, &missing) {
		if err = add(ctx, executables, request); err == nil {
			executable, err = executables.Open(request.Digest)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, executables.Close())
	}
	return executable, func() { _, _ = executable.Close(), executables.Close() }, nil
}

func add(ctx context.Context, store *store.Store, request *confine.Request) error {
	file, err := os.Open(request.Executable)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	digest, err := store.Import(ctx, file)
	if err == nil && digest != request.Digest {
		err = fmt.Errorf("%s was changed at the same time: its digest is %s and was %s", request.Executable, digest, request.Digest)
	}
	return err
}

// chownToRole makes the role the owner of directories.
func chownToRole(remit *plugin.Remit, directories []string) (err error) {
	for _, directory := range directories {
		err = errors.Join(err, os.Chown(directory, int(remit.UID), int(remit.GID)), os.Chmod(directory, 0o700))
	}
	return err
}

// open lets the role reach the sockets in directories, as a node does with its host sockets.
func open(remit *plugin.Remit, directories []string) error {
	if remit.SharedUID {
		return nil
	}
	for _, directory := range directories {
		entries, err := os.ReadDir(directory)
		if err == nil {
			err = errors.Join(os.Chown(directory, -1, int(remit.GID)), os.Chmod(directory, 0o710))
		}
		for _, entry := range entries {
			if path := filepath.Join(directory, entry.Name()); entry.Type() == os.ModeSocket {
				err = errors.Join(err, os.Lchown(path, -1, int(remit.GID)), os.Chmod(path, 0o660))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits for the process, and kills it when ctx ends.
func await(ctx context.Context, child *sandbox.Child) *confine.Ended {
	ended := make(chan struct{})
	var state *os.ProcessState
	go func() {
		defer close(ended)
		state, _ = child.Process.Wait() // nobody else waits for this child
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		// endDescendants kills the rest of its process group. The group's number may belong to others once the process has ended.
		_ = child.Process.Kill()
		for waiting := true; waiting; {
			select {
			case <-ended:
				waiting = false
			case <-time.After(buryEvery):
				child.Bury()
			}
		}
	}
	if child.PIDFD != nil {
		_ = child.PIDFD.Close()
	}
	child.Release()
	if state == nil {
		return &confine.Ended{Code: -1} // the wait failed
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return &confine.Ended{Code: -1, Signal: int(status.Signal())}
	}
	return &confine.Ended{Code: status.ExitStatus()}
}

// endDescendants gives processes that the role left time to end, kills the rest, and returns their command lines.
func endDescendants(ctx context.Context) []string {
	var found []string
	killed := make(map[int]bool)
	for deadline := time.Now().Add(linger); ; time.Sleep(pause) {
		if reap() {
			return found
		}
		if ctx.Err() == nil && time.Now().Before(deadline) {
			continue
		}
		for _, pid := range descendants(os.Getpid()) {
			// A killed process may be found once more before it has ended, then without its command line.
			if line := kill(pid); line != "" && !killed[pid] {
				killed[pid] = true
				if !slices.Contains(found, line) {
					found = append(found, line)
				}
			}
		}
	}
}

// reap waits for every ended child, and reports whether there are no children. Only that proves that no descendant is left: an orphan becomes a child
// of this process before its parent can be reaped, while a listing of /proc may miss a process that starts meanwhile.
func reap() bool {
	for {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); {
		case errors.Is(err, unix.ECHILD):
			return true
		case err != nil && !errors.Is(err, unix.EINTR), err == nil && pid == 0:
			return false
		}
	}
}

// kill kills a process if it still descends from this one, and returns its command line; empty if it has ended. It opens the process before the
// check, so the signal cannot reach another process with the same number (except on a kernel without pidfd_open).
func kill(pid int) string {
	process, err := os.FindProcess(pid)
	if err != nil {
		return ""
	}
	defer func() { _ = process.Release() }()
	if !descends(pid, os.Getpid()) {
		return ""
	}
	line := commandLine(pid)
	_ = process.Kill()
	return line
}
