package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
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
	// roundBound is how long one round may take. It is long, since each new user takes a few writes, and a wipe as many as it has keys.
	roundBound = time.Minute
)

// Store is what a Reconciler needs of the store.
type Store interface {
	// Client's calls are made with contexts of store.Root.
	Client() *clientv3.Client
	// Fence makes a fence: what is done within it (store.Within) has no effect any more when there is another one, which Holds tells.
	Fence(context.Context) (string, error)
	Holds(fence string) bool
	Status() *event.Value[store.Status]
	// Accounts lists whatever exists under a user's name, finished or not.
	Accounts() ([]string, error)
	EnsureUser(ctx context.Context, user string) error
	RemoveUser(ctx context.Context, user string) error
	// Wipe removes what a user that was removed has stored, as long as the key document is as it was at a revision: store.ErrChanged.
	Wipe(ctx context.Context, user, document string, revision int64) (removed int64, err error)
	// RevokeOrphans revokes the leases of users that were wiped.
	RevokeOrphans(ctx context.Context) error
}

// Reconciler keeps the users of the store.
type Reconciler struct {
	log         hclog.Logger
	store       Store
	clusterUser string
	key         string
	fence       string   // of this leadership; empty: there is none yet
	last        document // the last good one
	malformed   int64    // the revision of the malformed document that was logged last
}

// document is what the cluster API wishes.
type document struct {
	desired  *consensusv1.DesiredState // nil: none was read
	modified int64                     // the revision at which it was written
}

// New returns a Reconciler that follows the document of the cluster user, which is never removed.
func New(log hclog.Logger, store Store, clusterUser string) *Reconciler {
	return &Reconciler{
		log:         log,
		store:       store,
		clusterUser: clusterUser,
		key:         desired.Key(clusterUser),
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
			if look = current.Leading() && !leading; look {
				r.fence = ""
			}
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
		revision, err := r.act(ctx)
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

// act makes a round within the fence of this leadership, and reads the document only after it was made: so what a former leader has read before has no effect, and what is read here
// has none when there is a later leader.
func (r *Reconciler) act(ctx context.Context) (int64, error) {
	if r.fence == "" || !r.store.Holds(r.fence) {
		making, cancel := context.WithTimeout(ctx, roundBound)
		defer cancel()
		fence, err := r.store.Fence(making)
		if err != nil {
			return 0, err
		}
		r.fence = fence
	}
	return r.round(store.Within(ctx, r.fence))
}

// round makes the users what the document wants, and returns the revision at which it was read.
func (r *Reconciler) round(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	wish, revision, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	wanted := []string{r.clusterUser}
	for _, user := range wish.desired.GetUsers() {
		wanted = append(wanted, user.ConsensusUser)
	}
	var problems []error
	for _, user := range wanted {
		problems = append(problems, r.store.EnsureUser(ctx, user))
	}
	if wish.desired != nil {
		problems = append(problems, r.withdraw(ctx, wanted), r.wipe(ctx, wish, wanted), r.store.RevokeOrphans(ctx))
	}
	return revision, errors.Join(problems...)
}

// wipe removes what users have stored that are to be wiped. One that is wanted all the same keeps everything; one that is still there is wiped when it is gone.
func (r *Reconciler) wipe(ctx context.Context, wish document, wanted []string) error {
	if len(wish.desired.WipedUsers) == 0 {
		return nil
	}
	accounts, err := r.store.Accounts()
	if err != nil {
		return err
	}
	var problems []error
	for _, user := range wish.desired.WipedUsers {
		if slices.Contains(wanted, user) || slices.Contains(accounts, user) {
			continue
		}
		removed, err := r.store.Wipe(ctx, user, r.key, wish.modified)
		if removed > 0 {
			r.log.Info("removed what a user has stored, as the cluster's owner wishes", "user", user, "keys", removed)
		}
		if errors.Is(err, store.ErrChanged) {
			break // the watch tells of the new document
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
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

// read returns the document as a quorum has it, and the revision of the store. If there is none it returns an empty one; if it is malformed it returns the
// last good one.
func (r *Reconciler) read(ctx context.Context) (document, int64, error) {
	answer, err := r.store.Client().Get(store.Root(ctx), r.key)
	if err != nil {
		return document{}, 0, fmt.Errorf("read %s: %w", r.key, err)
	}
	revision := answer.Header.Revision
	if len(answer.Kvs) == 0 {
		return document{}, revision, nil
	}
	modified := answer.Kvs[0].ModRevision
	parsed, err := desired.Parse(answer.Kvs[0].Value)
	if err != nil {
		if modified != r.malformed {
			r.malformed = modified
			r.log.Error("the document of desired users cannot be used; going on with the last good one", "key", r.key, "revision", modified, "error", err)
		}
		return r.last, revision, nil
	}
	r.last = document{desired: parsed, modified: modified}
	return r.last, revision, nil
}
