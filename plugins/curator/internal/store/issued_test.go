package store_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
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

// issued is how many certificates there are, which are read by pages, each of them once.
func issued(t *testing.T, s *store.Store) int {
	t.Helper()
	const most = 99
	known := make(map[string]bool)
	for after, more := "", true; more; more = after != "" {
		page, next, err := s.ListIssued(t.Context(), after, most)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > most {
			t.Errorf("a page has %d", len(page))
		}
		for _, one := range page {
			if whose := one.Node + "/" + one.Role; known[whose] {
				t.Errorf("%s is on two pages", whose)
			} else {
				known[whose] = true
			}
		}
		after = next
	}
	return len(known)
}

// certificateUntil is one that expires at a time.
func certificateUntil(t *testing.T, expires time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: expires.Add(-time.Hour), NotAfter: expires}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Certificates that are issued to the same one at the same time leave one note, and no lease.
func TestNotesAtTheSameTime(t *testing.T) {
	s, client, _ := created(t)
	before := leases(t, client)
	var group sync.WaitGroup
	for n := range 12 {
		group.Go(func() {
			if _, err := s.NoteIssued(t.Context(), store.Issued{Node: "reeve-1", Certificate: []byte{byte(n)}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if now := leases(t, client); now != before || issued(t, s) != 1 {
		t.Errorf("%d leases more, %d notes", now-before, issued(t, s))
	}
}

// A certificate renews the one before it, if that one lives.
func TestRenewedCertificate(t *testing.T) {
	s, _, _ := created(t)
	for n, one := range []struct {
		expires time.Time
		renews  bool
	}{{time.Now().Add(-time.Hour), false}, {time.Now().Add(time.Hour), false}, {time.Now().Add(2 * time.Hour), true}} {
		renewed, err := s.NoteIssued(t.Context(), store.Issued{Node: "reeve-1", Certificate: certificateUntil(t, one.expires)})
		if err != nil || renewed != one.renews {
			t.Errorf("certificate %d: it renews one that lives: %t, %v", n, renewed, err)
		}
	}
}

// TestSweepIssued removes the certificates that have expired, and nothing else, however many there are.
func TestSweepIssued(t *testing.T) {
	s, client, first := created(t)
	now := time.Now().Truncate(time.Second)
	expired, valid := certificateUntil(t, now), certificateUntil(t, now.Add(time.Second))
	const count = 300
	for n := range count {
		certificate := valid
		if n%3 == 0 {
			certificate = expired
		}
		if _, err := s.NoteIssued(t.Context(), store.Issued{Node: fmt.Sprintf("reeve-%03d", n), Role: "lamp", Certificate: certificate}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Put(t.Context(), "issued/node/reeve-0", "damaged"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{count / 3, 0} {
		if swept, err := s.SweepIssued(t.Context(), now); swept != want || err != nil {
			t.Errorf("%d are swept, want %d: %v", swept, want, err)
		}
	}
	if left := issued(t, s); left != count-count/3 {
		t.Errorf("%d are left", left)
	}
	if state, err := s.ReadRecords(t.Context()); err != nil || state.Nodes[first.Node.GetId()] == nil {
		t.Errorf("%v", err)
	}
}
