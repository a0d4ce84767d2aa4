package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaderless is a KV that says at once that it elects a leader, and keeps when it was asked.
type leaderless struct {
	clientv3.KV
	asked []time.Time
}

func (l *leaderless) Txn(context.Context) clientv3.Txn { return &leaderlessTxn{of: l} }

type leaderlessTxn struct {
	clientv3.Txn
	of *leaderless
}

func (t *leaderlessTxn) Then(...clientv3.Op) clientv3.Txn { return t }

func (t *leaderlessTxn) Commit() (*clientv3.TxnResponse, error) {
	t.of.asked = append(t.of.asked, time.Now())
	return nil, rpctypes.ErrLeaderChanged
}

// A store that elects a leader is asked again, with pauses that grow and are bounded, for as long as somebody waits, and no longer.
func TestPausesWhileTheStoreElects(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *clientv3.Client) error{
		"reads": func(ctx context.Context, client *clientv3.Client) error {
			_, err := readAgain(ctx, client)
			return err
		},
		"writes": func(ctx context.Context, client *clientv3.Client) error {
			_, _, err := writeAgain(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) { return client.Txn(ctx).Then().Commit() })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(leaderless)
				client := clientv3.NewCtxClient(t.Context())
				client.KV = store
				const within = 10 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				if err := ask(ctx, client); !errors.Is(err, rpctypes.ErrLeaderChanged) {
					t.Errorf("%v, want what the store has said", err)
				}
				if took := time.Since(began); took != within {
					t.Errorf("it took %v, want all of the %v that somebody waits", took, within)
				}
				const growing = 6 // pauses, before they are the longest
				different := make(map[time.Duration]bool)
				for i := 1; i < len(store.asked); i++ {
					pause := store.asked[i].Sub(store.asked[i-1])
					if pause < firstPause/2 || pause > lastPause*3/2 {
						t.Errorf("pause %d is %v, want one between %v and %v", i, pause, firstPause/2, lastPause*3/2)
					}
					if i > growing {
						different[pause] = true
					}
				}
				if most := int(within/(lastPause/2)) + growing; len(store.asked) < 2*growing || len(store.asked) > most {
					t.Errorf("asked %d times, want %d to %d", len(store.asked), 2*growing, most)
				}
				if len(different) < 3 {
					t.Errorf("the longest pauses are %v: those who ask at the same time come back at the same time", different)
				}
			})
		})
	}
}

// TestChangeIsTriedForAsLongAsItIsWaitedFor has a change be tried for as long as its caller waits, within reason.
func TestChangeIsTriedForAsLongAsItIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{answerWithin: answerWithin}
		for waits, want := range map[time.Duration]time.Duration{0: answerWithin, time.Second: time.Second, 15 * time.Second: 14 * time.Second, time.Hour: longest} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if waits > 0 {
				ctx, cancel = context.WithTimeout(ctx, waits)
			}
			bounded, end := s.lasting(ctx)
			deadline, _ := bounded.Deadline()
			if got := time.Until(deadline); got != want {
				t.Errorf("for one who waits for %v it is tried for %v, want %v", waits, got, want)
			}
			end()
			cancel()
		}
	})
}
