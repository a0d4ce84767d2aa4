package access

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/roles"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// setWithin is how long the provider may take for a set: it closes and opens sockets, which takes milliseconds. One that takes longer hangs
// and is asked again.
const setWithin = 10 * time.Second

// retries is how soon something is tried again that failed: soon, since a provider that has just been launched is ready within
// milliseconds, and never so rarely that anybody would notice that it was waited for.
func retries() *backoff.ExponentialBackOff {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = 20 * time.Millisecond
	policy.MaxInterval = time.Second
	policy.Multiplier = 2
	return policy
}

// report is what a provider says of the store.
type report struct {
	from   string // instance ID
	status *consensusv1.StoreStatus
	stream int // counts the streams on which it was told
}

// connection speaks to one provider of the store on one connection, for as long as both live.
type connection struct {
	instanceID string
	conn       grpc.ClientConnInterface
	client     consensusv1.ConsensusServiceClient
	log        hclog.Logger
	sets       *event.Value[*consensusv1.SetAccessRequest]
	reports    *event.Value[report]

	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// providerOf returns who provides the store, if somebody does who can be spoken to.
func providerOf(capabilities roles.Capabilities) (roles.Provider, bool) {
	provider, ok := capabilities[roles.CapabilityConsensus]
	return provider, ok && provider.Conn != nil
}

// follow speaks to the present provider, and no longer to the one before.
func (r *Room) follow(ctx context.Context, provider roles.Provider, provided bool) {
	if r.provider != nil {
		if provided && r.provider.instanceID == provider.InstanceID && r.provider.conn == provider.Conn {
			return
		}
		r.disconnect()
	}
	if !provided {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{
		instanceID: provider.InstanceID,
		conn:       provider.Conn,
		client:     consensusv1.NewConsensusServiceClient(provider.Conn),
		log:        r.log.With("provider", provider.InstanceID),
		sets:       &r.sets,
		reports:    &r.reports,
		cancel:     cancel,
	}
	c.workers.Go(func() { c.send(ctx) })
	c.workers.Go(func() { c.receive(ctx) })
	r.provider = c
}

// disconnect ends the talk with the present provider and forgets what it reported.
func (r *Room) disconnect() {
	if r.provider == nil {
		return
	}
	r.provider.cancel()
	r.provider.workers.Wait()
	r.provider = nil
	r.reports.Set(report{})
}

// send gives the provider the newest set: the present one at once, every change, and again what it refused or, as a new stream of reports
// shows, has forgotten.
func (c *connection) send(ctx context.Context) {
	sets, reports := c.sets.Watch(), c.reports.Watch()
	policy := retries()
	var (
		request *consensusv1.SetAccessRequest
		taken   bool // whether the provider has taken request
		seen    report
		retry   <-chan time.Time
		refusal string
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sets.Changed():
			request, _ = sets.Next(ctx)
		case <-retry:
		case <-reports.Changed():
			before := seen
			seen, _ = reports.Next(ctx)
			if request == nil || !seen.calls(before, request, taken) {
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		err := c.give(ctx, request)
		taken = err == nil
		if taken {
			retry, refusal = nil, ""
			policy.Reset()
			continue
		}
		wait := policy.NextBackOff()
		retry = time.After(wait)
		level := hclog.Debug
		if message := status.Convert(err).Message(); message != refusal {
			// Once for each reason: a provider that is being started refuses for a while.
			refusal, level = message, hclog.Info
		}
		c.log.Log(level, "The consensus store did not take the set of instances that may use it; it is sent again", "number", request.GetNumber(),
			"wait", wait, "error", err)
	}
}

func (c *connection) give(ctx context.Context, request *consensusv1.SetAccessRequest) error {
	ctx, cancel := context.WithTimeout(ctx, setWithin)
	defer cancel()
	_, err := c.client.SetAccess(ctx, request)
	return err
}

// calls reports whether a set should be sent because of what is reported now: it was not taken, and the store has been formed since, or it
// was, and on a new stream the provider does not know of it.
func (r report) calls(before report, request *consensusv1.SetAccessRequest, taken bool) bool {
	if !taken {
		return r.status.GetFormed() && !before.status.GetFormed()
	}
	forgotten := r.status.GetCoreStart() != request.GetCoreStart() || r.status.GetAccessNumber() < request.GetNumber()
	return r.status != nil && r.stream != before.stream && forgotten
}

// receive publishes what the provider reports of the store, and nothing while it does not report.
func (c *connection) receive(ctx context.Context) {
	policy := retries()
	for stream := 1; ; stream++ {
		err := c.watch(ctx, stream, policy.Reset)
		if ctx.Err() != nil {
			return
		}
		c.reports.Set(report{from: c.instanceID, stream: stream})
		wait := policy.NextBackOff()
		c.log.Debug("The consensus store does not report at present; it is asked again", "wait", wait, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// watch publishes the reports of one stream until it breaks.
func (c *connection) watch(ctx context.Context, number int, received func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.client.WatchStore(ctx, &consensusv1.WatchStoreRequest{})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		received()
		if response.GetStatus() != nil {
			c.reports.Set(report{from: c.instanceID, status: response.GetStatus(), stream: number})
		}
	}
}
