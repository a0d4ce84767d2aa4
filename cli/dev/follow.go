package dev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Follower follows the node of a dev directory from before it runs, and says every change of it. End it with Close.
type Follower struct {
	directory *Directory
	daemon    *Daemon
	now       func() time.Time
	// changed is told every change of the node, say everything else.
	changed, say func(string)

	conn     *grpc.ClientConn
	api      nodev1.NodeServiceClient
	statuses chan *nodev1.Status
	// failed has the reason why the node cannot be followed any more.
	failed chan error
	// unlocked has how unlocking the volume went.
	unlocked chan unlocking
	// died is closed when the daemon has ended.
	died   chan struct{}
	cancel context.CancelFunc
	wait   sync.WaitGroup

	last *nodev1.Status
	// makes says that the node makes its cluster, or registers with it, while it is followed.
	makes bool
	// approved says that the node was let in.
	approved bool
	// unlocks says that the volume was tried to be opened with the recovery key of the directory, or that there is none.
	unlocks bool
}

// Follow begins to follow. daemon is the one that was started for the directory; nil if another process did. changed is told every change of the node, say
// what else people are to know. now is the clock by which certificates are good.
func Follow(directory *Directory, daemon *Daemon, now func() time.Time, changed, say func(string)) (*Follower, error) {
	conn, err := target.NewLocalClient(directory.Path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{
		directory: directory, daemon: daemon, now: now, changed: changed, say: say, api: nodev1.NewNodeServiceClient(conn), unlocked: make(chan unlocking, 1),
		statuses: make(chan *nodev1.Status), failed: make(chan error, 1), died: make(chan struct{}), cancel: cancel,
	}
	f.conn = conn
	f.wait.Go(func() {
		f.failed <- f.watch(ctx, f.api)
	})
	if daemon != nil {
		f.wait.Go(func() {
			if daemon.Wait(ctx) == nil {
				close(f.died)
			}
		})
	}
	return f, nil
}

// Close ends following; it does not end the node.
func (f *Follower) Close() {
	f.cancel()
	_ = f.conn.Close()
	f.wait.Wait()
}

// Status returns what the node last said; nil if it has said nothing.
func (f *Follower) Status() *nodev1.Status { return f.last }

// watch passes every status on. It returns if the node refuses to be watched, or with ctx.
func (f *Follower) watch(ctx context.Context, node nodev1.NodeServiceClient) error {
	for {
		err := f.watchOnce(ctx, node)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.Canceled, codes.Unknown:
			// It stops, or has stopped; the next stream waits until it is there again.
		default:
			return fault.FromRPC(err, "cannot watch the node in "+f.directory.Path, "See "+f.directory.LogFile()+".")
		}
	}
}

func (f *Follower) watchOnce(ctx context.Context, node nodev1.NodeServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := node.WatchStatus(ctx, &nodev1.WatchStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case f.statuses <- response.GetStatus():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *Follower) see(status *nodev1.Status) {
	for _, line := range Changes(f.last, status) {
		f.changed(line)
	}
	f.last = status
	switch status.GetMembership().GetState() {
	case hostv1.MembershipState_MEMBERSHIP_STATE_BOOTSTRAPPING, hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN, hostv1.MembershipState_MEMBERSHIP_STATE_TRUSTED:
		f.makes = true
	}
}

// retryRecord is how long after a failure the cluster is asked again for the node's record: it serves within moments of the node being Home.
const retryRecord = 200 * time.Millisecond

// UntilUp waits until the node is Home and the roles with which its cluster was made are Ready. It fails if reeved ends, if one of these roles is
// Failed and stays so, or after timeout. A cluster that was made earlier is not given up because of such a role, once it can be managed: it
// may have been configured wrongly since, and to set that right the node has to run. What is wrong is then said.
func (f *Follower) UntilUp(ctx context.Context, timeout time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	broken, retry := time.NewTimer(0), time.NewTimer(0)
	broken.Stop()
	retry.Stop()
	defer broken.Stop()
	defer retry.Stop()
	if f.last != nil {
		retry.Reset(0) // It may be up already.
	}
	var record *clusterv1.NodeRecord
	var health Health
	for {
		select {
		case status := <-f.statuses:
			f.see(status)
			f.unlock(bounded)
		case unlocked := <-f.unlocked:
			for _, note := range unlocked.notes {
				f.say(output.Clean(note))
			}
			// One that has ended, or serves its API anew before the answer came, says itself how it is.
			if unlocked.err != nil && fault.CodeOf(unlocked.err) != fault.Unreachable {
				return unlocked.err
			}
		case <-retry.C:
		case <-broken.C:
			what := health.Broken
			if what == "" {
				what = health.Ailing
			}
			if f.tolerates(health) {
				f.tolerate(what)
				return nil
			}
			return fault.New(fault.Failed, what,
				f.directory.shortage()+"The logs of the roles are in "+filepath.Join(f.directory.State, "data", "logs")+", that of reeved is "+f.directory.LogFile()+".")
		case err := <-f.failed:
			return err
		case <-f.died:
			return f.death()
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if f.tolerates(health) {
				f.tolerate(health.Missing)
				return nil
			}
			return fault.New(fault.Failed, fmt.Sprintf("the node in %s is not up after %s: %s", f.directory.Path, timeout, health.Why()),
				f.directory.shortage()+"See "+f.directory.LogFile()+".")
		}
		if record == nil && f.last.GetMembership().GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_HOME {
			if record = f.record(bounded); record == nil {
				retry.Reset(retryRecord)
			}
		}
		if !f.approved && f.last.GetMembership().GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN {
			switch err := f.approve(bounded); fault.CodeOf(err) {
			case fault.OK:
				f.approved = true
			case fault.Unreachable:
				retry.Reset(retryRecord)
			default:
				return err
			}
		}
		wasDoubtful := f.doubtful(health)
		health = Judge(f.last, f.directory.Roles(), record)
		switch {
		case health.Up:
			return nil
		case !f.doubtful(health):
			broken.Stop()
		case !wasDoubtful:
			broken.Reset(await.Settle)
		}
	}
}

// doubtful says that there is no use in waiting much longer. A role of a new cluster may ail until what it needs is there.
func (f *Follower) doubtful(health Health) bool {
	return health.Broken != "" || (health.Ailing != "" && health.Manageable && !f.makes)
}

func (f *Follower) tolerates(health Health) bool {
	return health.Manageable && f.daemon != nil && !f.makes
}

func (f *Follower) tolerate(what string) {
	f.say("The node runs, but " + what + ". Set it right with `reeve node role add`, or take the role from the node with `reeve node role remove`.")
}

// record asks the cluster for the node's record; nil if it does not answer. A cluster that refuses the directory's key, since the owner has another one
// now, is no worse than any: what the node itself says of its roles, which it knows from the cluster, then stands for the record.
func (f *Follower) record(ctx context.Context) *clusterv1.NodeRecord {
	record, err := f.ask(ctx)
	switch fault.CodeOf(err) {
	case fault.OK:
		return record
	case fault.Refused, fault.NotFound:
		f.say("The cluster does not let in the key of " + f.directory.Path + ": " + fault.Message(err) +
			" Commands of this directory need --owner-key with the present one, or a session (`reeve login`).")
		record = &clusterv1.NodeRecord{Id: f.last.GetNodeId()}
		for _, instance := range f.last.GetNode().GetInstances() {
			record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: instance.GetRole()})
		}
		return record
	}
	return nil
}

func (f *Follower) ask(ctx context.Context) (record *clusterv1.NodeRecord, err error) {
	err = f.manage(ctx, f.directory.Path, func(ctx context.Context, management clusterv1.ManagementServiceClient) error {
		response, err := management.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: f.last.GetNodeId()})
		record = response.GetNode().GetRecord()
		return fault.FromRPC(err, "cannot read the node's record", "")
	})
	return record, err
}

// approve lets a node in that has registered with the ticket of its directory: no ticket gives the roles that it asks for without somebody looking at it. That is the very key with
// which the node in the directory runs, by its own socket.
func (f *Follower) approve(ctx context.Context) error {
	return f.manage(ctx, f.directory.whole(), func(ctx context.Context, management clusterv1.ManagementServiceClient) error {
		_, err := management.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: f.last.GetNodeId(), PublicKey: f.last.GetPublicKey()})
		return fault.FromRPC(err, "cannot approve the node in "+f.directory.Path+", which has registered", "`reeve node approve "+f.last.GetNodeId()+"` approves it.")
	})
}

// manage has a call made by the owner of a directory.
func (f *Follower) manage(ctx context.Context, dir string, call func(context.Context, clusterv1.ManagementServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cluster, err := target.Open(ctx, target.Options{Dir: dir, Now: f.now})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	return call(ctx, cluster.API())
}

// UntilEnd says every change of the node until ctx ends, which is no error, or reeved does.
func (f *Follower) UntilEnd(ctx context.Context) error {
	for {
		select {
		case status := <-f.statuses:
			f.see(status)
		case err := <-f.failed:
			return err
		case <-f.died:
			return f.death()
		case <-ctx.Done():
			return nil
		}
	}
}

// lastWords is how many lines of its log explain the end of reeved: the reason is in the last one, and what led to it shortly before.
const lastWords = 10

func (f *Follower) death() error {
	if lines := f.daemon.LastLines(lastWords); lines != "" {
		f.say("The last lines of the log of reeved:\n" + lines)
	}
	return f.daemon.Death()
}

// Stop ends the daemon while it says what changes. It kills it when that takes longer than what runs may take.
func (f *Follower) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), StopTime(f.last))
	defer cancel()
	stopped := make(chan error, 1)
	f.wait.Go(func() { stopped <- f.daemon.Stop(ctx) })
	for {
		select {
		case status := <-f.statuses:
			f.see(status)
		case err := <-f.failed:
			if !errors.Is(err, context.Canceled) {
				f.say(err.Error())
			}
		case err := <-stopped:
			return err
		}
	}
}
