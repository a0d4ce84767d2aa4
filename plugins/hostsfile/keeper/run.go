package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// attemptTime bounds one reading and replacing of the file, and the naming of the machine, each of which takes milliseconds unless the core is
	// away.
	attemptTime = 10 * time.Second
	// stuckTime is how long all that one attempt consists of may take before the role is not well: no single step of it may take that long.
	stuckTime = time.Minute
	// collisions is how often in a row the file may be changed by somebody else between reading and replacing it, before that counts as
	// an error.
	collisions = 10
	// recheck is how often the file and the machine's names are looked at though nothing is known to have changed: not every file system tells of changes, and
	// nobody tells of those of a name.
	recheck = time.Minute
	// Other programs rewrite hosts files too, and drop the block: it is put back at once, but after pace at the earliest, and it is said when that was needed
	// disputed times within disputedTime.
	pace         = time.Second
	disputed     = 3
	disputedTime = time.Minute
	// networkTime is how long the node's own addresses are waited for, which the core has from the beginning on a machine that has any: without them
	// the node would be left out of the file for a moment at every start.
	networkTime = 2 * time.Second
	// firstRetry and lastRetry bound the wait after an attempt that failed; it doubles in between.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// removeTime bounds the removal of the block when the role is stopped, below the 10 s that a role has by default. It takes milliseconds; a
	// core that is dead is not waited for, and the role that the next one starts takes the block over.
	removeTime = 8 * time.Second
)

// Host is what the role needs of its host: a *role.Host has it.
type Host interface {
	NodeID() string
	Configuration() []byte
	Grants() []role.Grant
	Logger() hclog.Logger
	Directory() *event.Value[*hostv1.Directory]
	Network() *event.Value[[]string]
	ReadFile(ctx context.Context, path string) (content []byte, digest string, err error)
	ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, inPlace bool, err error)
	AwaitFile(ctx context.Context, path, digest string) error
	SetHostname(ctx context.Context, name string) (changed, inPlace bool, err error)
	SetMachineID(ctx context.Context, id string) (changed, inPlace bool, err error)
	SetValue(name, value string)
	StopReason() role.StopReason
	Ready()
	Degraded(reason string)
}

// Keeper is the role. Run may be called once.
type Keeper struct {
	resolver Resolver
	// busy is since when an attempt has been under way; nil: none is.
	busy atomic.Pointer[time.Time]
}

// New returns a keeper that finds out through a resolver whether the node finds itself.
func New(resolver Resolver) *Keeper { return &Keeper{resolver: resolver} }

// CheckHealth returns an error if the role hangs.
func (k *Keeper) CheckHealth(context.Context) error {
	if since := k.busy.Load(); since != nil {
		if took := time.Since(*since); took > stuckTime {
			return fmt.Errorf("an attempt to write the hosts file has not come to an end for %s, and should take milliseconds", took.Round(time.Second))
		}
	}
	return nil
}

// Run keeps the block until ctx is done, and then removes it, unless the node stops: whoever is left on the machine needs the
// names until it is back. What starts again at once may be for another file. It is Ready when the file is as it should be and the node finds itself by it, and
// the machine has the names that are configured; it is Degraded while something of that is not so.
func (k *Keeper) Run(ctx context.Context, host Host) error {
	configuration, err := ParseConfiguration(host.Configuration())
	if err != nil {
		return err
	}
	r := &run{
		host: host, configuration: configuration, path: configuration.File(host.Grants()), lookup: lookup{resolver: k.resolver}, written: written{host: host},
	}
	r.keep(ctx, &k.busy)
	if host.StopReason() == role.StopNode {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if _, _, err := r.rewrite(ctx, block.Remove); err != nil {
		return fmt.Errorf("the block was not removed: %w", err)
	}
	return nil
}

// run is one Run.
type run struct {
	host          Host
	configuration Configuration
	path          string
	lookup        lookup
	written       written
	asked         bool // whether the host has ever been asked to replace the file
	hasMachineID  bool
	// digest is that of the file when it was last as it should be; "": it was not yet.
	digest string
	// had says that the file had the block, of the entries former.
	had    bool
	former []block.Entry
	// putBack are the times at which the block was written since others had changed it, within disputedTime.
	putBack []time.Time
}

// keep follows the directory and the node's addresses until ctx is done.
func (r *run) keep(ctx context.Context, busy *atomic.Pointer[time.Time]) {
	directories, networks := r.host.Directory().Watch(), r.host.Network().Watch()
	retry, began := firstRetry, time.Now()
	for ctx.Err() == nil {
		directory, known := directories.Latest()
		network, ofMachine := networks.Latest()
		waiting := known && !ofMachine && time.Since(began) < networkTime
		known = known && !waiting
		now := time.Now()
		busy.Store(&now)
		problems, unsettled := r.attempt(ctx, directory, known, network)
		busy.Store(nil)
		if ctx.Err() != nil {
			return
		}
		wait := recheck
		switch problem := errors.Join(problems...); {
		case problem != nil:
			r.host.Logger().Error("not everything is as it should be", "path", r.path, "error", problem, "retry", retry.String())
			r.host.Degraded(strings.ReplaceAll(problem.Error(), "\n", "; "))
			wait, retry = retry, min(2*retry, lastRetry)
		case known:
			r.host.Ready()
			retry = firstRetry
		}
		if unsettled {
			wait = min(wait, cacheTime)
		}
		if waiting {
			wait = min(wait, networkTime)
		}
		timer := time.NewTimer(wait)
		rewritten, stop := r.watch(ctx)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-directories.Changed():
		case <-networks.Changed():
		case <-rewritten:
			select {
			case <-time.After(time.Until(now.Add(pace))):
			case <-ctx.Done():
			}
		}
		stop()
		timer.Stop()
	}
}

// watch returns a channel that is closed when the file is not as it was left, as far as the host tells, and what ends the watch.
func (r *run) watch(ctx context.Context) (rewritten <-chan struct{}, stop func()) {
	changed := make(chan struct{})
	if r.digest == "" {
		return changed, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			err := r.host.AwaitFile(ctx, r.path, r.digest)
			if err == nil {
				close(changed)
			}
			if status.Code(err) != codes.Unavailable {
				return
			}
			// The core starts again.
			select {
			case <-time.After(pace):
			case <-ctx.Done():
				return
			}
		}
	})
	return changed, func() {
		cancel()
		watching.Wait()
	}
}

// others says that other programs drop the block again and again; nil: they do not.
func (r *run) others() error {
	r.putBack = slices.DeleteFunc(r.putBack, func(at time.Time) bool { return time.Since(at) >= disputedTime })
	if len(r.putBack) < disputed {
		return nil
	}
	return fmt.Errorf("another program keeps rewriting %s without the block, which was put back %d times within the last minute: find the program, and have it keep what it does not know",
		r.path, len(r.putBack))
}

// attempt makes everything as it should be, and returns what could not be made so. Before the directory is known the file stays as it is: what an
// earlier instance has written into it is better than nothing.
func (r *run) attempt(ctx context.Context, directory *hostv1.Directory, known bool, network []string) (problems []error, unsettled bool) {
	problems = r.nameMachine(ctx)
	if !known {
		return problems, false
	}
	should := entries(directory, r.host.NodeID(), r.configuration.Hostname.Of(r.host.NodeID()), network)
	content, err := r.write(ctx, should)
	if err != nil {
		return append(problems, err), false
	}
	problems = append(problems, r.others())
	err = r.lookup.check(ctx, r.path, content, should, r.host.NodeID())
	if unsettled = errors.Is(err, errUnsettled); unsettled {
		err = r.lookup.verdict
	}
	return append(problems, err), unsettled
}

func (r *run) write(ctx context.Context, should []block.Entry) (content []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	content, wrote, err := r.rewrite(ctx, func(content []byte) []byte { return block.Write(content, should) })
	if err != nil {
		return nil, err
	}
	if wrote && r.had && slices.Equal(should, r.former) {
		r.host.Logger().Warn("another program rewrote the hosts file without the block, which was put back", "path", r.path)
		r.putBack = append(r.putBack, time.Now())
	}
	r.had, r.former = true, should
	return content, nil
}

// rewrite replaces the file's content by what change makes of it, and returns it and whether that was another. If somebody else changes the file at the same time,
// it begins again with what they have written.
func (r *run) rewrite(ctx context.Context, change func([]byte) []byte) (_ []byte, wrote bool, err error) {
	r.digest = ""
	for range collisions {
		var content []byte
		var digest string
		content, digest, err = r.host.ReadFile(ctx, r.path)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return nil, false, r.explain(err)
		}
		changed := change(content)
		same := bytes.Equal(changed, content)
		// The first time the host is asked also if the file is as it should be: it then writes nothing, and says how it would.
		if same && (r.asked || missing) {
			r.digest = digest
			return changed, false, nil
		}
		var inPlace bool
		if digest, inPlace, err = r.host.ReplaceFile(ctx, r.path, digest, changed); err == nil {
			r.asked, r.digest = true, digest
			r.written.note(r.path, inPlace)
			if !same {
				r.host.Logger().Info("the hosts file was written", "path", r.path, "in_place", inPlace)
			}
			return changed, !same, nil
		}
		if !errors.Is(err, role.ErrFileChanged) {
			return nil, false, r.explain(err)
		}
	}
	return nil, false, fmt.Errorf("%s is changed by others all the time: %w", r.path, err)
}

func (r *run) explain(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the role may not replace %s: grant it replace-file with this path, or configure the path that it is granted: %w", r.path, err)
	}
	return err
}
