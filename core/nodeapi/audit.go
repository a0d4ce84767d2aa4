package nodeapi

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/events"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// Call is the type of the event that an audited call is recorded as. Details: caller, rpc, code, address, "request.<field>" for the fields of
// the request that audit logs show, and for calls that were refused: suppressed, how many others were left out since the last.
const Call = "Call"

const (
	// refusedEvery and refusedBurst are how often calls that were refused are recorded: who may not call must not fill the journal.
	refusedEvery = 10 * time.Second
	refusedBurst = 20
)

// audit records audited calls.
type audit struct {
	to      events.Recorder
	refused map[clusterv1.Caller]*refusals
}

// refusals are the refused calls of one kind of caller: those of a node do not hide those of a viewer.
type refusals struct {
	limiter    *rate.Limiter
	suppressed atomic.Uint64
}

func newAudit(to events.Recorder) *audit {
	a := &audit{to: to, refused: make(map[clusterv1.Caller]*refusals)}
	for kind := range clusterv1.Caller_name {
		a.refused[clusterv1.Caller(kind)] = &refusals{limiter: rate.NewLimiter(rate.Every(refusedEvery), refusedBurst)}
	}
	return a
}

// call is what is known of an audited call.
type call struct {
	who     caller
	method  string
	refused bool
	shown   map[string]string
}

// saw takes note of a request. Of a stream of them, the first is shown.
func (c *call) saw(request any) {
	if message, ok := request.(proto.Message); ok {
		c.shown = rpcoption.Shown(message)
	}
}

// record records how a call ended.
func (a *audit) record(c call, err error) {
	if a.to == nil {
		return
	}
	details := map[string]string{"caller": c.who.name, "rpc": shortName(c.method), "code": status.Code(err).String(), "address": c.who.address}
	if c.refused && !c.who.local() {
		of := a.refused[c.who.kind]
		if !of.limiter.Allow() {
			of.suppressed.Add(1)
			return
		}
		if left := of.suppressed.Swap(0); left > 0 {
			details["suppressed"] = strconv.FormatUint(left, 10)
		}
	}
	for name, value := range c.shown {
		details["request."+name] = value
	}
	severity := nodev1.Severity_SEVERITY_INFO
	if status.Code(err) != codes.OK {
		severity = nodev1.Severity_SEVERITY_WARNING
	}
	recorded := &nodev1.Event{
		Type: Call, Severity: severity, Details: details,
		Message: fmt.Sprintf("%s called %s: %s", c.who.name, shortName(c.method), status.Code(err)),
	}
	// What was done to a role is found among the events of the role.
	if role := c.shown["role"]; names.ValidName(role) {
		recorded.Role = role
	}
	a.to.Record(recorded)
}
