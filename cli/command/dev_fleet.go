package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// fleet is the nodes of a dev directory that one command runs. All but the progress of the single nodes is one goroutine's, which is the one that starts them.
type fleet struct {
	c       *commands
	first   *dev.Directory
	others  []*dev.Directory
	dir     string
	options upOptions
	nodes   []*fleetNode
	// saying guards the standard error, to which the nodes' progress goes.
	saying sync.Mutex
}

// fleetNode is a node that runs.
type fleetNode struct {
	directory *dev.Directory
	// daemon is nil if another one has started it.
	daemon   *dev.Daemon
	follower *dev.Follower
	pid      int
}

// openFleet makes the dev directory if there is none, and finds its nodes. It runs nothing.
func (c *commands) openFleet(dir string, options upOptions) (*fleet, error) {
	if options.plan.Plugins == "" {
		options.plan.Plugins = c.beside("plugins")
	}
	first, err := dev.Make(dir, options.plan, c.Places)
	if err != nil {
		return nil, err
	}
	others, err := first.Others()
	if err != nil {
		return nil, err
	}
	return &fleet{c: c, first: first, others: others, dir: dir, options: options}, nil
}

// begin runs one node that there is, and with wait waits until it is up.
func (f *fleet) begin(ctx context.Context, number int, wait bool) error {
	for _, directory := range append([]*dev.Directory{f.first}, f.others...) {
		if directory.Number != number {
			continue
		}
		if err := f.start(ctx, directory); err != nil {
			return err
		}
		if !wait {
			continue
		}
		if err := f.untilUp(ctx, f.nodes[len(f.nodes)-1:]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) say(line string) {
	f.saying.Lock()
	defer f.saying.Unlock()
	f.c.say(line)
}

// sayOf returns what says a line of a node: of several with its number.
func (f *fleet) sayOf(number int) func(string) {
	if !f.several() {
		return f.say
	}
	return func(line string) { f.say(fmt.Sprintf("[node %d] %s", number, line)) }
}

// several says whether there are several nodes, or will be.
func (f *fleet) several() bool { return len(f.others) > 0 || f.options.nodes > 1 }

// up runs the existing nodes until they are up, and then the new ones.
func (f *fleet) up(ctx context.Context) error {
	fresh := f.fresh()
	if err := f.first.CheckAddresses(fresh); err != nil {
		return err
	}
	for _, directory := range append([]*dev.Directory{f.first}, f.others...) {
		// One that has yet to register gets another ticket first, for which the cluster has to be there.
		if directory.Registers() {
			continue
		}
		if err := f.start(ctx, directory); err != nil {
			return err
		}
	}
	if err := f.tellMove(ctx); err != nil {
		return err
	}
	if err := f.untilUp(ctx, f.nodes); err != nil {
		return err
	}
	if len(fresh) == 0 {
		return nil
	}
	before := len(f.nodes)
	if err := f.add(ctx, fresh); err != nil {
		return err
	}
	return f.untilUp(ctx, f.nodes[before:])
}

// fresh are the numbers of the nodes that have yet to register.
func (f *fleet) fresh() []int {
	most := f.options.nodes
	there := map[int]bool{1: true}
	for _, other := range f.others {
		there[other.Number] = !other.Registers()
		most = max(most, other.Number)
	}
	if f.options.nodes > 0 && f.options.nodes < 1+len(f.others) {
		f.say(fmt.Sprintf("The cluster has %d nodes, and keeps them: `%s node decommission NODE` takes one away.", 1+len(f.others), f.c.advice(f.dir)))
	}
	var fresh []int
	for number := 2; number <= most; number++ {
		registered, made := there[number]
		if !registered && (made || number <= f.options.nodes) {
			fresh = append(fresh, number)
		}
	}
	return fresh
}

// start runs a node, unless it runs already, and begins to follow it.
func (f *fleet) start(ctx context.Context, directory *dev.Directory) error {
	if err := directory.Prepare(); err != nil {
		return err
	}
	say := f.sayOf(directory.Number)
	shown := directory.Path
	if directory.Number == 1 {
		shown = f.dir
	}
	conn, pid, err := target.DialLocal(ctx, directory.Path)
	switch {
	case err == nil:
		_ = conn.Close()
		say(fmt.Sprintf("A node runs in %s already (process %d).", shown, pid))
		follower, err := dev.Follow(directory, nil, f.c.Now, func(string) {}, say)
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, &fleetNode{directory: directory, follower: follower, pid: pid})
		return nil
	case !errors.Is(err, target.ErrNotRunning):
		return fault.Wrap(fault.Failed, err, "cannot tell whether a node runs in "+shown, "")
	}
	if pid, held := target.Holder(directory.Path); held {
		return fault.New(fault.Failed, fmt.Sprintf("reeved (process %d) holds %s and does not answer", pid, shown), "`"+f.c.advice(f.dir)+" dev down` stops it.")
	}
	daemon, err := directory.Start(f.c.beside("reeved"), f.options.detach, f.options.again)
	if err != nil {
		return errors.Join(err, directory.Lower())
	}
	node := &fleetNode{directory: directory, daemon: daemon, pid: daemon.PID()}
	say(fmt.Sprintf("Starting a node in %s (process %d; its log is %s).", shown, daemon.PID(), directory.LogFile()))
	if node.follower, err = dev.Follow(directory, daemon, f.c.Now, say, say); err != nil {
		stopErr := stopDaemon(daemon)
		daemon.Release()
		if stopErr == nil {
			stopErr = directory.Lower()
		}
		return errors.Join(err, stopErr)
	}
	f.nodes = append(f.nodes, node)
	return nil
}

// untilUp waits until nodes are up. The others are waited for when one is not.
func (f *fleet) untilUp(ctx context.Context, nodes []*fleetNode) error {
	timeout := time.Duration(len(nodes)) * f.options.timeout
	failures := make([]error, len(nodes))
	var waiting sync.WaitGroup
	for i, node := range nodes {
		waiting.Go(func() { failures[i] = node.follower.UntilUp(ctx, timeout) })
	}
	waiting.Wait()
	for i, node := range nodes {
		switch {
		case failures[i] == nil:
			failures[i] = node.directory.Registered()
		case node.directory.Number > 1 && node.follower.Status().GetMembership().GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING:
			// The others are well without it.
			f.sayOf(node.directory.Number)(fmt.Sprintf("It was removed from the cluster, for good. `%s dev down --node %d`, and then %s can be removed to have another node in its place.",
				f.c.advice(f.dir), node.directory.Number, node.directory.Path))
			failures[i] = nil
		}
	}
	return errors.Join(failures...)
}

// started says whether this command has started a node that may run.
func (f *fleet) started() bool {
	for _, node := range f.nodes {
		if node.daemon != nil {
			return true
		}
	}
	return false
}

// interrupted says that somebody ended a command in the foreground, as it is usually ended.
func (f *fleet) interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && !f.options.detach && f.started()
}

// untilEnd says every change of some nodes until ctx ends. A node that ends by itself ends the command if it is the only one; of several the others go on.
func (f *fleet) untilEnd(ctx context.Context, nodes []*fleetNode) error {
	var waiting sync.WaitGroup
	ends := make([]error, len(nodes))
	for i, node := range nodes {
		waiting.Go(func() {
			ends[i] = node.follower.UntilEnd(ctx)
			if ends[i] != nil && len(f.nodes) > 1 {
				f.sayOf(node.directory.Number)(output.CleanLines(ends[i].Error()))
			}
		})
	}
	waiting.Wait()
	if len(f.nodes) == 1 {
		return ends[0]
	}
	if ctx.Err() == nil {
		return fault.Wrap(fault.Failed, errEnded, "the cluster in "+f.dir+" does not run any more", "`"+f.c.advice(f.dir)+" dev up` starts it again.")
	}
	return nil
}

// lower takes away the network namespaces of nodes that have ended by themselves before they were up, and for which this command has made these: nothing goes on in them.
func (f *fleet) lower() error {
	var failures []error
	for _, node := range f.nodes {
		if node.daemon == nil || !node.daemon.Ended() || !node.directory.Raised() {
			continue
		}
		// What it may have left first: it has the namespace.
		_, err := dev.Down(context.Background(), node.directory.Path, f.c.beside("reeved"), 0)
		if err == nil {
			err = node.directory.Lower()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// stop stops the nodes that this command has started, unless they have ended by themselves, and returns cause, with what went wrong in stopping.
func (f *fleet) stop(cause error) error {
	running := f.running()
	switch {
	case len(running) == 0:
		return cause
	case len(f.nodes) == 1:
		f.say("Stopping the node and all of its roles.")
	default:
		f.say("Stopping the nodes and all of their roles.")
	}
	failures := make([]error, len(running))
	var stopping sync.WaitGroup
	for i, node := range running {
		stopping.Go(func() {
			if failures[i] = node.follower.Stop(); failures[i] == nil {
				failures[i] = node.directory.RemoveNetwork()
			}
		})
	}
	stopping.Wait()
	return errors.Join(append([]error{cause}, failures...)...)
}

// close lets go of the nodes.
func (f *fleet) close() {
	for _, node := range f.nodes {
		node.follower.Close()
		if node.daemon != nil {
			node.daemon.Release()
		}
	}
}
