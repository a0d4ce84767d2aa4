package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// usualStop is how long a node may take to stop whose roles take no longer than is usual: several graces in a row.
const usualStop = 30 * time.Second

// StopTime is how long a node may take to stop, by what runs on it.
func StopTime(status *nodev1.Status) time.Duration {
	return usualStop + await.LongStops(status.GetNode().GetInstances())
}

// Down stops the node that runs in a dev directory, and returns when reeved and all processes of its roles have ended. If none runs, the roles that a
// dead one may have left are stopped. It fails after timeout and then says what still runs; 0: after as long as what runs may take.
func Down(ctx context.Context, path, reeved string, timeout time.Duration) (output.Down, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return output.Down{}, err
	}
	down := output.Down{Directory: absolute, Roles: []string{}, Nodes: []output.Down{}}
	caller, byRoles := ctx, timeout == 0
	if byRoles {
		timeout = usualStop + limits.MaxStopGrace // of what a dead node has left that is not known
	}
	ctx, cancel := context.WithTimeout(caller, timeout)
	defer cancel()
	node, err := holdNode(ctx, path)
	switch {
	case errors.Is(err, target.ErrNotRunning):
		down.Reaped, err = reap(ctx, path, reeved)
		return down, err
	case err != nil:
		return down, holdFault(err, path)
	}
	defer node.close()
	status := localStatus(ctx, path, node)
	down.Roles = running(status)
	if byRoles && status != nil {
		timeout = StopTime(status)
		ctx, cancel = context.WithTimeout(caller, timeout)
		defer cancel()
	}
	roles := holdRoles(status)
	defer func() {
		for _, role := range roles {
			role.process.close()
		}
	}()
	if err := node.signal(unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return down, stopFault(err, path)
	}
	if err := node.wait(ctx); err != nil {
		return down, unfinished(path, timeout, node, roles)
	}
	down.Stopped = node.pid
	left := func(role heldRole) bool { return !role.process.ended() }
	if status == nil || slices.ContainsFunc(roles, left) {
		// It may not have got to its end: killed by another, say.
		down.Reaped, err = reap(ctx, path, reeved)
	}
	return down, err
}

// WouldDown says what Down would stop, or that it would be refused, and stops nothing.
func WouldDown(ctx context.Context, path string) (output.Down, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return output.Down{}, err
	}
	down := output.Down{Directory: absolute, DryRun: true, Roles: []string{}, Nodes: []output.Down{}}
	node, err := holdNode(ctx, path)
	switch {
	case errors.Is(err, target.ErrNotRunning):
		directory, err := reapable(path)
		down.Reaped = directory != nil
		return down, err
	case err != nil:
		return down, holdFault(err, path)
	}
	defer node.close()
	// Signal 0 is only checked.
	if err := node.signal(0); err != nil && !errors.Is(err, unix.ESRCH) {
		return down, stopFault(err, path)
	}
	down.Stopped = node.pid
	down.Roles = running(localStatus(ctx, path, node))
	return down, nil
}

func isFault(err error) bool {
	var known *fault.Error
	return errors.As(err, &known)
}

func holdFault(err error, path string) error {
	if isFault(err) {
		return err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault.Wrap(fault.Refused, err, "the node in "+path+" belongs to another user", "Run reeve as that user, or as root.")
	}
	return fault.Wrap(fault.Failed, err, "cannot find the node in "+path, "")
}

func stopFault(err error, path string) error {
	return fault.Wrap(fault.Refused, err, "cannot stop the node in "+path, "Run reeve as the user whom it belongs to.")
}

// holdNode holds the process that serves the node's API in a directory, or that has its lock and does not answer: its socket may be gone.
func holdNode(ctx context.Context, path string) (*process, error) {
	for {
		conn, pid, err := target.DialLocal(ctx, path)
		if errors.Is(err, target.ErrNotRunning) {
			if holder, err := holdLocked(path); holder != nil || err != nil {
				return holder, err
			}
		}
		if err != nil {
			return nil, err
		}
		_ = conn.Close()
		node, err := openProcess(pid)
		if errors.Is(err, unix.ESRCH) {
			continue // It ended in between.
		}
		if err != nil {
			return nil, err
		}
		// That it still listens shows that the pidfd is of the process that listened before.
		conn, again, err := target.DialLocal(ctx, path)
		if err == nil {
			_ = conn.Close()
			if again == pid {
				return node, nil
			}
		}
		node.close()
		if err != nil {
			return nil, err
		}
	}
}

// holdLocked holds the process that has the lock of a directory; nil if none has.
func holdLocked(path string) (*process, error) {
	for {
		pid, held := target.Holder(path)
		switch {
		case !held:
			return nil, nil
		case pid == 0:
			return nil, fmt.Errorf("a reeved of another PID namespace has its lock (%s)", filepath.Join(path, "system", "lock"))
		}
		node, err := openProcess(pid)
		if errors.Is(err, unix.ESRCH) {
			continue // It ended in between.
		}
		if err != nil {
			return nil, err
		}
		// That it still has the lock shows that the pidfd is of the process that had it before.
		if again, _ := target.Holder(path); again == pid {
			node.silent = true
			return node, nil
		}
		node.close()
	}
}

type heldRole struct {
	role    string
	process *process
}

// holdRoles holds the processes of the node's roles, as far as the node says which they are: it is only for telling what is left.
func holdRoles(status *nodev1.Status) []heldRole {
	var roles []heldRole
	for _, instance := range status.GetNode().GetInstances() {
		if instance.GetPid() == 0 {
			continue
		}
		if process, err := openProcess(int(instance.GetPid())); err == nil {
			roles = append(roles, heldRole{role: instance.GetRole(), process: process})
		}
	}
	return roles
}

// running are the roles of which a process runs.
func running(status *nodev1.Status) []string {
	roles := []string{}
	for _, instance := range status.GetNode().GetInstances() {
		if instance.GetPid() != 0 {
			roles = append(roles, instance.GetRole())
		}
	}
	return roles
}

// localStatus is what the node in a directory says of itself; nil if it does not answer: one that hangs is still to be stopped.
func localStatus(ctx context.Context, path string, node *process) *nodev1.Status {
	if node.silent {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cluster, err := target.Open(ctx, target.Options{Dir: path})
	if err != nil {
		return nil
	}
	defer func() { _ = cluster.Close() }()
	status, err := cluster.LocalStatus(ctx)
	if err != nil {
		return nil
	}
	return status
}

func unfinished(path string, timeout time.Duration, node *process, roles []heldRole) error {
	left := []string{fmt.Sprintf("reeved (process %d)", node.pid)}
	for _, role := range roles {
		if !role.process.ended() {
			left = append(left, fmt.Sprintf("role %s (process %d)", role.role, role.process.pid))
		}
	}
	return fault.New(fault.Failed,
		fmt.Sprintf("the node in %s was told to stop, and after %s there are left: %s", path, timeout, strings.Join(left, ", ")),
		"Run the command again to wait longer, or kill reeved and run it then to stop the roles.")
}

// reapable returns the directory of a node that does not run but may have left roles; nil if there is none.
func reapable(path string) (*Directory, error) {
	directory, err := Find(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if isFault(err) {
		return nil, err
	}
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "cannot read the parameters of the node in "+path, "")
	}
	if former, _ := target.Former(directory.State); former != "" {
		// It was moved, and nothing of it has run here.
		return nil, nil
	}
	if _, err := os.Stat(directory.Parameters.GetDirectories().GetRun()); errors.Is(err, fs.ErrNotExist) {
		// It goes with the run time of the machine, and so did the roles.
		return nil, nil
	}
	return directory, nil
}

// reap stops the roles that a dead core has left. It says whether there was a node of which to look for them.
func reap(ctx context.Context, path, reeved string) (bool, error) {
	directory, err := reapable(path)
	if directory == nil {
		return false, err
	}
	command := exec.CommandContext(ctx, reeved, "reap", "--parameters", directory.ParametersFile())
	command.Dir = "/"
	text, err := command.CombinedOutput()
	if err != nil {
		return false, fault.New(fault.Failed,
			fmt.Sprintf("cannot stop the roles that the node in %s may have left: reeved reap: %v: %s", path, err, strings.TrimSpace(string(text))),
			"See "+directory.LogFile()+".")
	}
	return true, nil
}
