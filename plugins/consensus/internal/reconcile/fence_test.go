package reconcile_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/reconcile"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// slow is a store as a leader sees it that stands still between what it has read and what it does: the machine was suspended, say.
type slow struct {
	*store.Store
	remove, ensure string // before which user it stands still
	once           sync.Once
	// stands is closed when it stands still, which it does until goOn is; taken has what became of the step, after which it stands still again until over is closed.
	stands, goOn, over chan struct{}
	taken              chan error
}

// around stands still before the first step for a user, and tells when it was taken.
func (s *slow) around(user, at string, step func() error) error {
	if user != at {
		return step()
	}
	first := false
	s.once.Do(func() {
		first = true
		close(s.stands)
		<-s.goOn
	})
	err := step()
	if first {
		s.taken <- err
		<-s.over
	}
	return err
}

func (s *slow) RemoveUser(ctx context.Context, user string) error {
	return s.around(user, s.remove, func() error { return s.Store.RemoveUser(ctx, user) })
}

func (s *slow) EnsureUser(ctx context.Context, user string) error {
	return s.around(user, s.ensure, func() error { return s.Store.EnsureUser(ctx, user) })
}

// TestAFormerLeaderChangesNothing has a leader stand still before a step, another one act upon a newer document, and the former go on.
func TestAFormerLeaderChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, before []string // the document that the former leader has read, and who is there before
		later         []string // with cat, whose making tells that the later leader has acted
		slow          *slow
	}{
		{"a user that is new is not deleted", []string{"bee"}, []string{"ant"}, []string{"ant", "bee", "cat"}, &slow{remove: "ant"}},
		{"a user that was withdrawn does not come back", []string{"ant", "bee"}, nil, []string{"bee", "cat"}, &slow{ensure: "ant"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
			for _, user := range c.before {
				if err := s.EnsureUser(storetest.Context(t), user); err != nil {
					t.Fatal(err)
				}
			}
			put(t, s, document(t, c.first...))
			former := c.slow
			former.Store, former.stands, former.goOn, former.over, former.taken = s, make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- reconcile.New(storetest.Log(t), former, "curator").Run(ctx) }()
			<-former.stands

			put(t, s, document(t, c.later...))
			stop := run(t, s)
			want := append([]string{"curator"}, c.later...)
			slices.Sort(want)
			await(t, s, want...)
			stop()

			close(former.goOn)
			if err := <-former.taken; err == nil {
				t.Error("the step of the former leader was taken")
			}
			if got := usersOf(s); !slices.Equal(got, want) {
				t.Errorf("the users are %v, want %v", got, want)
			}
			cancel()
			close(former.over)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
