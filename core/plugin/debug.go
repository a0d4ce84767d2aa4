package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// Debugged is a process that the core's user started by hand, usually under a debugger, and that becomes the next instance of a role. It holds no resources: Launch checks
// that the process still runs.
type Debugged struct {
	Process
	// Role is the role that the process becomes, and Plugin the plugin that it says it is.
	Role, Plugin string

	manifest *rolev1.RoleManifest
	socket   string
}

// DebugError says why a process cannot be the instance of a role.
type DebugError struct {
	Role, Socket string
	Err          error
}

func (e *DebugError) Error() string {
	return fmt.Sprintf("plugin: the process at %s cannot be the role %s: %v", textFrom(e.Socket), e.Role, e.Err)
}

func (e *DebugError) Unwrap() error { return e.Err }

// debugHint tells the user what to do when no plugin answers on a socket.
const debugHint = "start the plugin with -debug, which prints where it listens"

// Debugged finds the process that listens on a socket and asks it for its manifest. The process must run as the core's user and lead its process group. The error is a
// *DebugError.
func (l *Launcher) Debugged(ctx context.Context, name, socket string) (*Debugged, error) {
	found, err := l.debugged(ctx, name, socket)
	if err != nil {
		return nil, &DebugError{Role: name, Socket: socket, Err: err}
	}
	return found, nil
}

func (l *Launcher) debugged(ctx context.Context, name, socket string) (*Debugged, error) {
	if !filepath.IsAbs(socket) || len(socket) >= unix.PathMax || limits.Clean(socket) != socket {
		return nil, errors.New("the path of its socket is not absolute, is too long or has control characters")
	}
	connection, err := connect(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, debugHint)
	}
	defer func() { _ = connection.Close() }()
	process, err := listening(connection)
	if err != nil {
		return nil, err
	}
	records, _, err := l.readRecords()
	if err != nil {
		return nil, fmt.Errorf("read the records of instances: %w", err)
	}
	for _, r := range records {
		if r.BootID == l.bootID && r.PID == process.PID && r.Start == process.Start {
			return nil, fmt.Errorf("process %d is the instance %s already: stop that one first", r.PID, r.InstanceID)
		}
	}
	d := &Debugged{Process: process, Role: name, socket: socket}
	held, err := d.hold()
	if err != nil {
		return nil, err
	}
	defer held.leave()
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience.Describe, fmt.Errorf("it did not answer Describe within %s: if a debugger has stopped it, let it continue and try again", l.patience.Describe))
	defer cancel()
	conn, err := l.dial(ctx, socket, listenerOf(held, uint32(os.Geteuid())))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := rolev1.NewRoleServiceClient(conn).Describe(ctx, &rolev1.DescribeRequest{}, bounded())
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("it does not answer Describe: %s: %s", textFrom(err.Error()), debugHint)
	}
	if err := store.CheckManifest(answer.GetManifest()); err != nil {
		return nil, err
	}
	d.Plugin = answer.GetManifest().GetName()
	if d.manifest = store.ManifestOf(&clusterv1.PluginRecord{Manifest: answer.GetManifest()}, name); d.manifest == nil {
		return nil, fmt.Errorf("it is the plugin %s, which has no such role", d.Plugin)
	}
	return d, nil
}

// listening is the process that listens where a connection ends.
func listening(connection net.Conn) (Process, error) {
	peer, err := peercred.Of(connection)
	if err != nil {
		return Process{}, err
	}
	if peer.UID != uint32(os.Geteuid()) {
		return Process{}, fmt.Errorf("it runs as user %d: start it as the core's user, %d", peer.UID, os.Geteuid())
	}
	if peer.PID == os.Getpid() {
		return Process{}, errors.New("it is the core itself")
	}
	if peer.PID <= 1 {
		return Process{}, fmt.Errorf("process %d listens on it, which is init or in another PID namespace", peer.PID)
	}
	if of := instanceOf(peer.PID); of != "" {
		return Process{}, fmt.Errorf("it is a process of the instance %s", textFrom(of))
	}
	s, err := proc.ReadStat(peer.PID)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", peer.PID, err)
	}
	// What was read belongs to the listener only if the listener is still alive.
	if socket, ok := connection.(*net.UnixConn); ok {
		err = peercred.CheckAlive(socket)
	}
	return Process{PID: peer.PID, Start: s.Start}, err
}

// hold opens a handle of the process, if it is still the same process and leads its group.
func (d *Debugged) hold() (*process, error) {
	return adoptProcess(record{PID: d.PID, Start: d.Start, UID: uint32(os.Geteuid())})
}

// Socket is where it was found.
func (d *Debugged) Socket() string { return d.socket }

// Declares reports whether the process's manifest of the role equals the catalog's. The catalog's counts in any case.
func (d *Debugged) Declares(of *clusterv1.PluginRecord) bool {
	return proto.Equal(d.manifest, store.ManifestOf(of, d.Role))
}

// openDebugged is open for a process that already runs.
func (l *Launcher) openDebugged(ctx context.Context, remit *Remit, d *Debugged) (opened *session, lines []string, err error) {
	s := &session{launcher: l, remit: remit, socket: d.socket, launched: time.Now()}
	if s.process, err = d.hold(); err != nil {
		return nil, nil, err
	}
	undo := []func(){s.process.leave}
	defer func() {
		if opened == nil {
			for _, step := range slices.Backward(undo) {
				step()
			}
		}
	}()
	// What it writes stays where it was started. Its log here says so.
	stderr, err := s.followStderr()
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, s.log.Finish)
	_, err = fmt.Fprintf(stderr, "process %d, which was started by hand, is the instance; its output is not in this log but where it was started\n", d.PID)
	if err = errors.Join(err, stderr.Close()); err != nil {
		return nil, nil, err
	}
	remit.SetProcess(s.process.Process)
	// The record has no spec, so the next core does not adopt the process but ends it.
	if err := l.writeRecord(remit.Name, recordOf(remit, remit.digest, s.process.Process, s.socket, s.launched, nil)); err != nil {
		return nil, nil, err
	}
	if s.conn, err = l.dial(ctx, s.socket, listenerOf(s.process, remit.UID)); err != nil {
		return nil, nil, err
	}
	return s, nil, nil
}
