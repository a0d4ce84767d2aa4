package management

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// written is a store of which each change writes 1 MiB, at its third try.
type written struct {
	Store
	mu   sync.Mutex
	made int // changes that were begun
}

func (w *written) Update(_ context.Context, _ store.Call, decide func(*store.State) (*store.Change, error)) (*store.State, error) {
	w.mu.Lock()
	w.made++
	w.mu.Unlock()
	state := &store.State{Operators: map[string]*clusterv1.Operator{"olga": {Id: "1"}, "otto": {Id: "2"}, "olivia": {Id: "3"}}}
	for range 3 {
		change, err := decide(state)
		if err != nil {
			return nil, err
		}
		change.Written = 1 << 20
		time.Sleep(time.Millisecond)
	}
	return state, nil
}

func (w *written) Preview(context.Context, func(*store.State) (*store.Change, error)) (*store.State, error) {
	return nil, nil
}

// want fails the test if not so many changes were made.
func (w *written) want(t *testing.T, made int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made != made {
		t.Errorf("%d changes were made, want %d", w.made, made)
	}
	w.made = 0
}

// An operator's changes are made one after another, some MiB of them at once, and the others as fast as the store takes them for long. Nobody else waits for that.
func TestPaceOfAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := new(written)
		service := NewService(Config{Store: made, Log: hclog.NewNullLogger()})
		guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(ctx context.Context) (auth.Caller, error) { return ctx.Value(service).(auth.Caller), nil }})
		guard.Enforce(auth.Permissions{"/a/b": {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_OWNER, clusterv1.Caller_CALLER_OPERATOR}}})
		change := func(ctx context.Context, by auth.Caller, dryRun bool) error {
			_, err := guard.Unary(context.WithValue(ctx, service, by), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
				return service.change(ctx, dryRun, func(*store.State) (*store.Change, error) { return new(store.Change), nil })
			})
			return err
		}
		operator := func(kind clusterv1.Caller, name, id string) auth.Caller {
			return auth.Caller{Kind: kind, Person: &auth.Person{Operator: name, ID: id, Session: new(identity.Session)}}
		}
		olga, otto := operator(clusterv1.Caller_CALLER_OPERATOR, "olga", "1"), operator(clusterv1.Caller_CALLER_OPERATOR, "otto", "2")
		owner := operator(clusterv1.Caller_CALLER_OWNER, "olivia", "3")
		var changes sync.WaitGroup
		// One after another, as the server has them called.
		changing := func(ctx context.Context, by auth.Caller, count int) {
			changes.Go(func() {
				for range count {
					if err := change(ctx, by, false); err != nil {
						t.Errorf("%s: %v", by, err)
					}
				}
			})
		}
		ctx, giveUp := context.WithCancel(t.Context())
		changing(t.Context(), olga, 20)
		time.Sleep(time.Second)
		made.want(t, 5)
		for range 10 {
			if err := change(ctx, owner, false); err != nil {
				t.Error(err)
			}
		}
		made.want(t, 10)
		if err := change(ctx, otto, false); err != nil {
			t.Error(err)
		}
		made.want(t, 1)
		if err := change(ctx, olga, true); err != nil {
			t.Errorf("a dry run: %v", err)
		}
		// One MiB in four seconds.
		time.Sleep(40 * time.Second)
		made.want(t, 10)
		giveUp()
		if err := change(ctx, olga, false); status.Code(err) != codes.Canceled {
			t.Errorf("a change that was given up: %v", err)
		}
		changes.Wait()
		made.want(t, 5)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := change(soon, olga, false); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a change that cannot be made in time: %v", err)
		}
		made.want(t, 0)
		time.Sleep(time.Hour)
		if err := change(t.Context(), olga, false); err != nil {
			t.Error(err)
		}
	})
}
