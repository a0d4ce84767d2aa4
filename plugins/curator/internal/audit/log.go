package audit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// waitAtMost is somewhat more than one write may take.
	waitAtMost = 6 * time.Second
	// queued is how many entries may wait: more than calls can be under way on some connections.
	queued = 1024
	// unprovenBurst and unprovenEvery bound the entries of callers who proved nothing: enough of them to see what somebody tries, and no more
	// than a day's worth of one per minute for one who tries all the time.
	unprovenBurst = 20
	unprovenEvery = time.Second
	// provenBurst and provenEvery bound the entries of a caller's calls that changed nothing, of answered and refused ones each, and kindEvery those of each RPC and code beyond that, so that no
	// kind of call is left out for another. All that one caller can have one curator write at once, of some forty RPCs, is less than a sixth of a shelf, and then less than two in a minute; what is
	// left out is counted.
	provenBurst = 60
	provenEvery = 5 * time.Minute
	kindEvery   = time.Hour
	// complainEvery is how often the log of the curator says that entries are lost: there may be thousands.
	complainEvery = time.Minute
	// trimAfter is after which part of what a shelf holds it is looked at again whether it is full.
	trimAfter = 100
)

// Store is where the entries are kept: a *store.Store.
type Store interface {
	AppendAudit(ctx context.Context, records []store.AuditRecord) error
	TrimAudit(ctx context.Context, shelf store.AuditShelf) (removed int64, err error)
}

var _ Store = (*store.Store)(nil)

// Counts is told what is written, for metrics.
type Counts interface {
	Audited(shelf store.AuditShelf, entries int)
	AuditSuppressed()
	AuditFailed()
}

// Config is what a Log needs.
type Config struct {
	Store  Store
	NodeID string
	Log    hclog.Logger
	Now    func() time.Time
	Counts Counts
	// UnprovenBurst and UnprovenEvery say how many calls of callers who proved nothing are written: so many at once, and then one in that time. Defaults:
	// 20 and 1 s.
	UnprovenBurst int
	UnprovenEvery time.Duration
	// ProvenBurst and ProvenEvery say the same of the calls of a caller who proved who it is, and that changed nothing. Defaults: 60 and 5 min.
	ProvenBurst int
	ProvenEvery time.Duration
	// WaitAtMost is how long a call waits for its entry to be written; default 6 s.
	WaitAtMost time.Duration
}

// Log writes the entries of this curator.
type Log struct {
	config  Config
	pending chan *item
	changes chan struct{} // tells Run of an entry that was written with a change; holds many
	crowds  crowds
	lost    rate.Sometimes
}

// item is an entry on its way.
type item struct {
	entry  *clusterv1.AuditEntry
	result chan error // holds one
	// abandoned: the call was told that it is not kept.
	abandoned atomic.Bool
}

// New returns a Log, which writes while Run runs.
func New(config Config) *Log {
	if config.UnprovenBurst == 0 {
		config.UnprovenBurst = unprovenBurst
	}
	if config.UnprovenEvery == 0 {
		config.UnprovenEvery = unprovenEvery
	}
	if config.ProvenBurst == 0 {
		config.ProvenBurst = provenBurst
	}
	if config.ProvenEvery == 0 {
		config.ProvenEvery = provenEvery
	}
	if config.WaitAtMost == 0 {
		config.WaitAtMost = waitAtMost
	}
	l := &Log{config: config, pending: make(chan *item, queued), changes: make(chan struct{}, queued), lost: rate.Sometimes{Interval: complainEvery}}
	l.crowds = crowds{now: time.Now, some: make(chan struct{}, 1), callers: make(map[caller]*budget)}
	return l
}

// Run writes until ctx is done, and then what is left.
func (l *Log) Run(ctx context.Context) {
	w := &writer{log: l, since: make(map[store.AuditShelf]int)}
	for _, shelf := range store.AuditShelves {
		w.since[shelf] = shelf.Most() // nobody knows yet how many there are
	}
	var due <-chan time.Time
	for {
		select {
		case first := <-l.pending:
			_ = w.write(first) // whoever waits for it is told
		case <-l.changes:
			w.wrote(store.AuditChanges, 1)
		case <-l.crowds.some:
			due = time.After(l.config.UnprovenEvery)
		case <-due:
			if due = nil; !l.settle(ctx, w) {
				due = time.After(l.config.UnprovenEvery)
			}
		case <-ctx.Done():
			w.last(l)
			return
		}
	}
}

// put hands an entry over, and waits until it is written. Whoever calls has been answered only then, whatever becomes of the call's context.
func (l *Log) put(entry *clusterv1.AuditEntry) error {
	timeout := time.NewTimer(l.config.WaitAtMost)
	defer timeout.Stop()
	handed := &item{entry: entry, result: make(chan error, 1)}
	select {
	case l.pending <- handed:
	case <-timeout.C:
		return l.busy()
	}
	select {
	case err := <-handed.result:
		return err
	case <-timeout.C:
		handed.abandoned.Store(true)
		return l.busy()
	}
}

func (l *Log) busy() error { return fmt.Errorf("it was not written within %v", l.config.WaitAtMost) }

// drop hands an entry over and does not wait. It reports whether there was room.
func (l *Log) drop(entry *clusterv1.AuditEntry) bool {
	select {
	case l.pending <- &item{entry: entry, result: make(chan error, 1)}:
		return true
	default:
		l.lost.Do(func() {
			l.config.Log.Warn("calls are not kept in the audit log, which cannot be written as fast", "rpc", entry.GetRpc(), "caller", entry.GetCaller(), "code", entry.GetCode())
		})
		l.config.Counts.AuditFailed()
		return false
	}
}

// noteChange counts an entry that the store wrote with a change.
func (l *Log) noteChange() {
	l.config.Counts.Audited(store.AuditChanges, 1)
	select {
	case l.changes <- struct{}{}:
	default: // Run has enough to count
	}
}

// issues are the RPCs by which nodes get identities.
var issues = []string{path.Base(clusterv1.NodeService_IssueSVID_FullMethodName), path.Base(clusterv1.NodeService_IssueRoleSVID_FullMethodName)}

// shelf is where an entry of a call that changed nothing belongs.
func shelf(entry *clusterv1.AuditEntry) store.AuditShelf {
	switch {
	case entry.GetCaller() == unknown:
		return store.AuditUnproven
	case slices.Contains(issues, entry.GetRpc()):
		return store.AuditIssued
	case entry.GetCode() != spell(codes.OK):
		return store.AuditRefused
	}
	return store.AuditCalls
}

// admit reports whether an entry is written now, or left out for one that stands for several.
func (l *Log) admit(entry *clusterv1.AuditEntry) bool {
	by, bound, of := l.place(entry)
	return l.crowds.admit(by, bound, of, entry)
}

// place is whose budget an entry is written from, and what others one entry stands for with it.
func (l *Log) place(entry *clusterv1.AuditEntry) (caller, allowance, kind) {
	if entry.GetCaller() == unknown {
		return caller{unknown, store.AuditUnproven}, allowance{l.config.UnprovenBurst, l.config.UnprovenEvery}, kind{}
	}
	by, of := caller{entry.GetCaller(), shelf(entry)}, kind{rpc: entry.GetRpc(), code: entry.GetCode()}
	switch {
	case by.shelf == store.AuditIssued:
		// Whoever has stolen the key of a node shows, however many identities the node asks for itself.
		of.from = Network(entry.GetAddress())
	case entry.GetRpc() == login:
		// Whoever has stolen a key logs in with it from somewhere else, which shows however much its holder calls and logs in.
		by.name, of.from = by.name+" logs in", Network(entry.GetAddress())
	}
	return by, allowance{l.config.ProvenBurst, l.config.ProvenEvery}, of
}

// login is the RPC by which a key becomes a session.
var login = path.Base(clusterv1.ManagementService_Login_FullMethodName)

// writer is the state of Run.
type writer struct {
	log   *Log
	since map[store.AuditShelf]int // entries since the shelf was last looked at
}

// write writes an entry, and all others that have come meanwhile, in one transaction.
func (w *writer) write(first *item) error {
	items := []*item{first}
	for waiting := true; waiting && len(items) < store.AuditBatch; {
		select {
		case next := <-w.log.pending:
			items = append(items, next)
		default:
			waiting = false
		}
	}
	records := make([]store.AuditRecord, len(items))
	shelves := make(map[store.AuditShelf]int)
	for i, item := range items {
		if item.abandoned.Load() {
			item.entry.Code, item.entry.Reason = spell(codes.Unavailable), w.log.busy().Error()
		}
		records[i] = store.AuditRecord{Shelf: shelf(item.entry), Entry: item.entry}
		shelves[records[i].Shelf]++
	}
	// Not the context of Run, which ends while calls still do. The store bounds it.
	err := w.log.config.Store.AppendAudit(context.Background(), records)
	for _, item := range items {
		item.result <- err
	}
	if err != nil {
		w.log.config.Counts.AuditFailed()
		w.log.config.Log.Warn("calls are not kept in the audit log", "calls", len(items), "error", err)
		return err
	}
	for shelf, entries := range shelves {
		w.log.config.Counts.Audited(shelf, entries)
		w.wrote(shelf, entries)
	}
	return nil
}

// wrote counts entries, and makes room from time to time.
func (w *writer) wrote(shelf store.AuditShelf, entries int) {
	if w.since[shelf] += entries; w.since[shelf] < shelf.Most()/trimAfter {
		return
	}
	w.since[shelf] = 0
	removed, err := w.log.config.Store.TrimAudit(context.Background(), shelf)
	switch {
	case errors.Is(err, store.ErrNoCluster):
	case err != nil:
		w.log.config.Log.Warn("the oldest entries of the audit log could not be removed; it is tried again", "error", err)
	case removed > 0:
		w.log.config.Log.Debug("removed the oldest entries of the audit log", "shelf", string(shelf), "entries", removed)
	}
}

// last writes what was handed over, unless the store is away: then nobody waits for it any more.
func (w *writer) last(l *Log) {
	left, _ := l.crowds.take(true)
	for {
		var next *item
		select {
		case next = <-l.pending:
		default:
			if len(left) == 0 {
				return
			}
			next, left = &item{entry: left[0], result: make(chan error, 1)}, left[1:]
		}
		if w.write(next) != nil {
			return
		}
	}
}

// settle writes entries for the calls that were left out, as far as more may be written. It reports whether nothing is left. Where the store is away they are left out for longer.
func (l *Log) settle(ctx context.Context, w *writer) bool {
	entries, left := l.crowds.take(false)
	for n, entry := range entries {
		if ctx.Err() == nil && w.write(&item{entry: entry, result: make(chan error, 1)}) == nil { // nobody waits for it
			continue
		}
		for _, entry := range entries[n:] {
			by, bound, of := l.place(entry)
			l.crowds.giveBack(by, bound, of, entry)
		}
		return false
	}
	return !left
}
