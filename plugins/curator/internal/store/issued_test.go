package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// leases is how many leases there are.
func leases(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	all, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Leases)
}

func issued(t *testing.T, s *store.Store) int {
	t.Helper()
	all, err := s.ListIssued(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Certificates that are issued to the same one at the same time leave one note and one lease.
func TestNotesAtTheSameTime(t *testing.T) {
	s, client, _ := created(t)
	before := leases(t, client)
	var group sync.WaitGroup
	for n := range 12 {
		group.Go(func() {
			_, err := s.NoteIssued(t.Context(), store.Issued{Node: "reeve-1", Certificate: []byte{byte(n)}}, time.Hour)
			if err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if now := leases(t, client); now != before+1 || issued(t, s) != 1 {
		t.Errorf("%d leases more, %d notes", now-before, issued(t, s))
	}
}

// granting is a client whose leases are told of as soon as they are granted.
type granting struct {
	clientv3.Lease
	granted func()
}

func (g *granting) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	response, err := g.Lease.Grant(ctx, ttl)
	g.granted()
	return response, err
}

// Whoever asked for a certificate may be gone once its lease is granted: it is used, or taken back.
func TestNoLeaseIsLeftBehind(t *testing.T) {
	s, client, _ := created(t)
	before := leases(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	own := client.Lease
	client.Lease = &granting{Lease: own, granted: cancel}
	if _, err := s.NoteIssued(ctx, store.Issued{Node: "reeve-1", Certificate: []byte("a")}, time.Hour); err != nil {
		t.Error(err)
	}
	if now := leases(t, client); now != before+1 || issued(t, s) != 1 {
		t.Errorf("%d leases more, %d notes", now-before, issued(t, s))
	}
	// Somebody else is always faster.
	client.Lease = &granting{Lease: own, granted: func() {
		if _, err := client.Put(t.Context(), "issued/node/reeve-2", ""); err != nil {
			t.Error(err)
		}
	}}
	if _, err := s.NoteIssued(t.Context(), store.Issued{Node: "reeve-2", Certificate: []byte("b")}, time.Hour); !errors.Is(err, store.ErrConflict) {
		t.Errorf("%v", err)
	}
	if now := leases(t, client); now != before+1 {
		t.Errorf("%d leases are left", now-before-1)
	}
}
