package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// adoptWord is how long an instance may take to state its status when it is adopted. One that is busy is adopted all the same: whether it answers
	// at all is asked again and again while it runs.
	adoptWord = 3 * time.Second
	// adoptAtOnce is how many instances are adopted at the same time.
	adoptAtOnce = 16
)

// errNotStarted says that a process was launched and its role was not started: the core ended in between.
var errNotStarted = errors.New("its role was not started before the last core ended")

// Adopt takes over what an earlier core of this node left running, and does for everything else what StopRecorded does. It is called before the first
// launch.
//
// An instance is adopted if its record is of this boot and of this version of the records; if the process with the recorded number is the recorded one, by its
// start time, its user and its group; if that group listens on its socket, by the kernel's word; and if it says on it that it is that
// instance. A role that ends with its core is not adopted. Whatever is not adopted and belongs to the node is ended, but for what belongs to
// those that are; a process that only has the number of one is not touched.
//
// On an error nothing is adopted, and what would have been runs on. Instances are sorted by role.
func (l *Launcher) Adopt(ctx context.Context) ([]*Instance, error) {
	records, err := l.records()
	if err != nil {
		return nil, err
	}
	var (
		mu       sync.Mutex
		sessions adopted
		firsts   = make(map[*session]*rolev1.WatchResponse)
	)
	var group errgroup.Group
	group.SetLimit(adoptAtOnce)
	for _, r := range records {
		group.Go(func() error {
			s, first, err := l.adopt(ctx, r)
			switch {
			case errors.Is(err, errGone):
				l.log.Warn("a role ended while no core ran", "role", r.Role, "instance", r.InstanceID, "pid", r.PID)
				return nil
			case err != nil:
				l.log.Warn("an instance that an earlier core left cannot be adopted and is ended", "role", r.Role, "instance", r.InstanceID, "pid", r.PID, "why", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			sessions = append(sessions, s)
			firsts[s] = first
			return nil
		})
	}
	_ = group.Wait()
	sessions = l.onePerRole(sessions)
	if err := l.endRecorded(ctx, records, sessions); err != nil {
		return nil, errors.Join(err, sessions.leave())
	}
	var instances []*Instance
	for _, s := range sessions {
		spec := s.spec
		l.log.Info("adopted", "role", spec.Role, "instance", s.remit.InstanceID, "pid", s.process.PID)
		instances = append(instances, newInstance(s, spec, firsts[s]))
	}
	return instances, nil
}

// onePerRole sorts by role, and keeps of each role the newest instance. There is no other unless a core did not come to stop it.
func (l *Launcher) onePerRole(sessions adopted) (kept adopted) {
	slices.SortFunc(sessions, func(a, b *session) int {
		return cmp.Or(strings.Compare(a.remit.Role, b.remit.Role), -a.launched.Compare(b.launched))
	})
	for _, s := range sessions {
		if len(kept) > 0 && kept[len(kept)-1].remit.Role == s.remit.Role {
			l.log.Warn("of a role more than one instance runs; the older one is ended", "role", s.remit.Role, "instance", s.remit.InstanceID)
			_ = s.leave() // it is ended as what it is: what is left of an earlier core
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// adopt takes over one instance. On an error it is as it was.
func (l *Launcher) adopt(ctx context.Context, r record) (_ *session, first *rolev1.WatchResponse, err error) {
	remit, spec, err := l.adoptable(r)
	if err != nil {
		return nil, nil, err
	}
	s := &session{launcher: l, remit: remit, spec: spec, socket: r.Socket, launched: time.Unix(0, r.Launched)}
	if s.process, err = adoptProcess(r); err != nil {
		return nil, nil, err
	}
	remit.SetProcess(s.process.Process)
	var undo []func()
	defer func() {
		if err != nil {
			slices.Reverse(undo)
			for _, step := range undo {
				step()
			}
		}
	}()
	undo = append(undo, s.process.leave)
	if s.conn, err = s.launcher.dial(ctx, s.socket, listenerOf(s.process, remit.UID)); err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() { _ = s.conn.Close() })
	if first, err = s.greet(ctx); err != nil {
		return nil, nil, err
	}
	if err = s.takeGroup(); err != nil {
		return nil, nil, err
	}
	if s.output, err = l.outputs.AdoptStdout(remit.Name); err != nil {
		return nil, nil, err
	}
	undo = append(undo, s.output.Close)
	if s.log, err = l.outputs.AdoptStderr(l.roleLog(remit.Role, remit.InstanceID), remit.Role, remit.Name); err != nil {
		return nil, nil, err
	}
	return s, first, nil
}

// adoptable says who the instance of a record is, if it is to be adopted at all.
func (l *Launcher) adoptable(r record) (*Remit, Spec, error) {
	switch {
	case r.Role == describeName:
		return nil, Spec{}, errors.New("it was only asked for its manifest")
	case r.BootID != l.bootID:
		return nil, Spec{}, fmt.Errorf("%w: the machine has started again", errGone)
	case r.PID <= 1 || r.Socket == "":
		return nil, Spec{}, errNotStarted
	case r.Protocol != role.Handshake.ProtocolVersion:
		return nil, Spec{}, fmt.Errorf("it speaks version %d of the plugin handshake, and this core %d", r.Protocol, role.Handshake.ProtocolVersion)
	case filepath.Dir(r.Socket) != l.runtimeDir(r.name()):
		return nil, Spec{}, fmt.Errorf("its socket %s is not in its runtime directory", textFrom(r.Socket))
	}
	spec, err := r.spec()
	if err != nil {
		return nil, Spec{}, err
	}
	if digest, err := store.Digest(spec.Plugin); err != nil || digest != r.Digest {
		return nil, Spec{}, errors.New("its record contradicts itself")
	}
	if store.ManifestOf(spec.Plugin, r.Role) == nil {
		return nil, Spec{}, &UnknownRoleError{Role: r.Role, Plugin: spec.Plugin.GetName()}
	}
	if store.ManifestOf(spec.Plugin, r.Role).GetEndsWithCore() {
		return nil, Spec{}, errors.New("its role ends with the core")
	}
	remit, err := l.remit(spec)
	if err != nil {
		return nil, Spec{}, err
	}
	if remit.UID != r.UID || remit.SharedUID != r.SharedUID {
		return nil, Spec{}, fmt.Errorf("it runs as user %d, and its role has user %d now", r.UID, remit.UID)
	}
	remit.InstanceID, remit.Name, remit.digest = r.InstanceID, r.name(), r.Digest
	return remit, spec, nil
}

// greet asks the process which instance it is and how it does. It returns nothing if that takes too long.
func (s *session) greet(ctx context.Context) (*rolev1.WatchResponse, error) {
	i := &Instance{session: s, generation: s.spec.Generation}
	waiting, cancel := context.WithTimeout(ctx, adoptWord)
	defer cancel()
	var first *rolev1.WatchResponse
	err := s.whileAlive(waiting, func(ctx context.Context) error {
		stream, err := rolev1.NewRoleServiceClient(s.conn).Watch(ctx, &rolev1.WatchRequest{}, bounded())
		if err != nil {
			return err
		}
		if first, err = stream.Recv(); err != nil {
			return err
		}
		return i.check(first)
	})
	var exited *exitedError
	switch {
	case err == nil:
		return first, nil
	case errors.As(err, &exited):
		return nil, errGone
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case waiting.Err() != nil:
		s.launcher.log.Warn("an instance is adopted that does not state its status yet", "role", s.remit.Role, "instance", s.remit.InstanceID)
		return nil, nil
	case status.Code(err) == codes.FailedPrecondition:
		return nil, errNotStarted
	}
	return nil, fmt.Errorf("it does not say that it is the instance: %s", textFrom(err.Error()))
}
