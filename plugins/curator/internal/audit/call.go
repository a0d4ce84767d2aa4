package audit

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// unknown is what callers are called who proved nothing.
const unknown = "unknown"

// unprovenValue is how long a value that such a caller sent is at most in the log, in bytes: enough for a node ID or a name.
const unprovenValue = 64

// Call is a call that is audited, while it is under way. It is the store.Call of the change that it makes. The nil Call is one that nobody audits, and
// that can so change nothing.
type Call struct {
	mu     sync.Mutex
	entry  *clusterv1.AuditEntry
	kept   bool // the entry was written with a change
	renews bool
	onKept func()
}

var _ store.Call = (*Call)(nil)

// newCall begins an entry. rpc is the full name of the RPC, address where the call comes from.
func newCall(rpc, address, node string, now time.Time) *Call {
	return &Call{entry: &clusterv1.AuditEntry{
		Time: timestamppb.New(now), Caller: unknown, Address: address, Rpc: path.Base(rpc), NodeId: node,
	}}
}

// By sets who called: as what the caller was let in, or CALLER_UNSPECIFIED if it was not.
func (c *Call) By(caller string, kind clusterv1.Caller) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry.Caller, c.entry.Kind = caller, kind
}

// Renews says that the call, if it succeeds, gives what an entry tells already: it has none of its own.
func (c *Call) Renews() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renews = true
}

// Network is where the call comes from.
func (c *Call) Network() string {
	if c == nil {
		return ""
	}
	return Network(c.entry.GetAddress())
}

// Asked sets what is shown of the request.
func (c *Call) Asked(request proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry.Parameters = rpcoption.Shown(request)
}

// Entry implements store.Call: the entry of a call that is done.
func (c *Call) Entry() *clusterv1.AuditEntry {
	if c == nil {
		return nil
	}
	return c.ended(nil)
}

// Kept implements store.Call.
func (c *Call) Kept() {
	c.mu.Lock()
	c.kept = true
	c.mu.Unlock()
	if c.onKept != nil {
		c.onKept()
	}
}

// written reports whether an entry tells of the call: its own, which was written with a change, or that of what it renews.
func (c *Call) written() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept || c.renews
}

// ended is the entry of a call that ended with err.
func (c *Call) ended(err error) *clusterv1.AuditEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := proto.CloneOf(c.entry)
	entry.Code, entry.Reason = spell(code(err)), answer.Reason(err)
	if entry.GetCaller() == unknown {
		for name, value := range entry.GetParameters() {
			entry.Parameters[name] = limits.Cut(value, unprovenValue)
		}
	}
	return entry
}

// spell is a code as gRPC writes it: "OK", "NotFound".
func spell(code codes.Code) string { return code.String() }

type callKey struct{}

func with(ctx context.Context, call *Call) context.Context {
	return context.WithValue(ctx, callKey{}, call)
}

// CallOf returns the call that ctx belongs to, or nil if it is not audited.
func CallOf(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}
