package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// lookInterval is how often the leader compares without being told of a change. A round that finds nothing to do writes nothing.
	lookInterval = 30 * time.Second
	// firstRetry and lastRetry bound the pause after a round that failed: the first is about an election, the last as long as a look's.
	firstRetry = time.Second
	lastRetry  = lookInterval
	// roundBound is how long one round may take. It is long, since each new user takes a few writes.
	roundBound = time.Minute
)

// Store is what a Reconciler needs of the store.
type Store interface {
	// Client's calls are made with contexts of store.Root.
	Client() *clientv3.Client
	Status() *event.Value[store.Status]
	// Accounts lists whatever exists under a user's name, finished or not.
	Accounts() ([]string, error)
	EnsureUser(ctx context.Context, user string) error
	RemoveUser(ctx context.Context, user string) error
}

// Reconciler keeps the users of the store.
type Reconciler struct {
	log         hclog.Logger
	store       Store
	clusterUser string
	key         string
	last        *consensusv1.DesiredState // the last good document; nil: none was read
	malformed   int64                     // the revision of the malformed document that was logged last
}

// New returns a Reconciler that follows the document of the cluster user, which is never removed.
func New(log hclog.Logger, store Store, clusterUser string) *Reconciler {
	return &Reconciler{
		log:         log,
		store:       store,
		clusterUser: clusterUser,
		key:         consensusv1.UserPrefix(clusterUser) + consensusv1.DesiredStateKey,
	}
}

// Run reconciles until ctx is done, and returns nil then.
func (r *Reconciler) Run(ctx context.Context) error {
	status := r.store.Status().Watch()
	var changes clientv3.WatchChan
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := firstRetry
	for leading := false; ; {
		look := false
		select {
		case <-ctx.Done():
			return nil
		case <-status.Changed():
			current, err := status.Next(ctx)
			if err != nil {
				return nil
			}
			look = current.Leading() && !leading
			leading = current.Leading()
		case change, ok := <-changes:
			look = leading
			if !ok || change.Err() != nil {
				changes = nil // the next round begins a new watch
			}
		case <-timer.C:
			look = leading
			timer.Reset(lookInterval)
		}
		if !look {
			continue
		}
		revision, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			r.log.Warn("the users of the store are not as desired yet; trying again", "in", retry.String(), "error", err)
			timer.Reset(retry)
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		timer.Reset(lookInterval)
		if changes == nil {
			changes = r.store.Client().Watch(store.Root(ctx), r.key, clientv3.WithRev(revision+1))
		}
	}
}

// round makes the users what the document wants, and returns the revision at which it was read.
func (r *Reconciler) round(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	desired, revision, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	wanted := []string{r.clusterUser}
	for _, user := range desired.GetUsers() {
		wanted = append(wanted, user.ConsensusUser)
	}
	var problems []error
	for _, user := range wanted {
		problems = append(problems, r.store.EnsureUser(ctx, user))
	}
	if desired != nil {
		problems = append(problems, r.withdraw(ctx, wanted))
	}
	return revision, errors.Join(problems...)
}

// withdraw removes the users that are not wanted.
func (r *Reconciler) withdraw(ctx context.Context, wanted []string) error {
	accounts, err := r.store.Accounts()
	if err != nil {
		return err
	}
	var problems []error
	for _, user := range accounts {
		if slices.Contains(wanted, user) {
			continue
		}
		err := r.store.RemoveUser(ctx, user)
		problems = append(problems, err)
		if err == nil {
			r.log.Info("removed a user whose grant was withdrawn", "user", user)
		}
	}
	return errors.Join(problems...)
}

// read returns the document as a quorum has it. If there is none it returns nil; if it is malformed it returns the last good one.
func (r *Reconciler) read(ctx context.Context) (*consensusv1.DesiredState, int64, error) {
	answer, err := r.store.Client().Get(store.Root(ctx), r.key)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", r.key, err)
	}
	revision := answer.Header.Revision
	if len(answer.Kvs) == 0 {
		return nil, revision, nil
	}
	desired, err := Parse(answer.Kvs[0].Value)
	if err != nil {
		if modified := answer.Kvs[0].ModRevision; modified != r.malformed {
			r.malformed = modified
			r.log.Error("the document of desired users cannot be used; going on with the last good one", "key", r.key, "revision", modified, "error", err)
		}
		return r.last, revision, nil
	}
	r.last = desired
	return desired, revision, nil
}
