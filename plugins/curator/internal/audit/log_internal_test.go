package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// shelves is a store that keeps everything, but while it is away.
type shelves struct {
	away  atomic.Bool
	tried atomic.Int64

	mu   sync.Mutex
	kept []*clusterv1.AuditEntry
}

func (s *shelves) AppendAudit(_ context.Context, records []store.AuditRecord) error {
	if s.tried.Add(1); s.away.Load() {
		time.Sleep(5 * time.Second)
		return errors.New("it is away")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, record := range records {
		s.kept = append(s.kept, record.Entry)
	}
	return nil
}

func (s *shelves) TrimAudit(context.Context, store.AuditShelf) (int64, error) { return 0, nil }

type uncounted struct{}

func (uncounted) Audited(store.AuditShelf, int) {}
func (uncounted) AuditSuppressed()              {}
func (uncounted) AuditFailed()                  {}

// onLog runs a test with a log, on a fake clock.
func onLog(t *testing.T, test func(t *testing.T, l *Log, s *shelves, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := new(shelves)
		l := New(Config{Store: s, NodeID: "node", Log: hclog.NewNullLogger(), Now: time.Now, Counts: uncounted{}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx)
		}()
		test(t, l, s, func() {
			cancel()
			<-ended
		})
	})
}

// calls has somebody call from an address.
func (l *Log) calls(rpc, address string) error {
	call := l.begin(rpc, address)
	call.By("operator vera", clusterv1.Caller_CALLER_VIEWER)
	return l.end(call, nil)
}

// count returns how many entries there are of a call, and for how many calls they stand.
func (s *shelves) count(rpc, address string) (entries int, calls uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range s.kept {
		if entry.GetRpc() == rpc && (address == "" || entry.GetAddress() == address) {
			entries++
			calls += 1 + entry.GetSuppressed()
		}
	}
	return entries, calls
}

// Whoever has a key could log in with it for as long as it takes to push out of the log what they did before. Of that, too, only so much is written, and whoever logs in with the same key from
// elsewhere shows, however much it is, and however much else is called.
func TestLoginsPushOutNothing(t *testing.T) {
	onLog(t, func(t *testing.T, l *Log, s *shelves, stop func()) {
		const logins = 500
		for n := range logins {
			if err := errors.Join(l.calls(login, fmt.Sprintf("192.0.2.2:%d", n)), l.calls("ListNodes", "192.0.2.2:1")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.calls(login, "198.51.100.7:1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if entries, _ := s.count(login, "198.51.100.7:1"); entries != 1 {
			t.Errorf("%d entries say that somebody has logged in from elsewhere", entries)
		}
		// However many networks somebody has.
		for n := range logins {
			if err := l.calls(login, fmt.Sprintf("[2001:db8:0:%x::1]:1", n)); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		entries, calls := s.count(login, "")
		if most := store.AuditCalls.Most() / 10; entries > most || calls != 2*logins+1 {
			t.Errorf("%d entries for %d logins, want at most %d for %d", entries, calls, most, 2*logins+1)
		}
	})
}

// What was left out is not lost while the store is away, and no curator waits for it when it stops.
func TestWhatIsLeftOutOutlastsTheStore(t *testing.T) {
	const kinds, calls = 40, 20
	crowd := func(t *testing.T, l *Log, s *shelves) {
		for n := range kinds * calls {
			if err := l.calls(fmt.Sprint("Call", n%kinds), "192.0.2.2:1"); err != nil {
				t.Fatal(err)
			}
		}
		s.away.Store(true)
		time.Sleep(2 * kindEvery)
	}
	onLog(t, func(t *testing.T, l *Log, s *shelves, stop func()) {
		crowd(t, l, s)
		s.away.Store(false)
		time.Sleep(2 * kindEvery)
		synctest.Wait()
		for n := range kinds {
			if _, of := s.count(fmt.Sprint("Call", n), ""); of != calls {
				t.Errorf("%d of %d calls of kind %d are in the log", of, calls, n)
			}
		}
		stop()
	})
	onLog(t, func(t *testing.T, l *Log, s *shelves, stop func()) {
		crowd(t, l, s)
		before := s.tried.Load()
		stop()
		if tried := s.tried.Load() - before; tried > 2 {
			t.Errorf("the store was tried %d times by a curator that stops", tried)
		}
	})
}
