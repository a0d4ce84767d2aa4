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

// setWithin is the timeout for SetAccess. The provider closes and opens sockets, which takes milliseconds. One that takes longer hangs and is asked
// again.
const setWithin = 10 * time.Second

// retries is the backoff of failed steps: short at first, since a provider that was just launched is ready within milliseconds, and never so long
// that anybody would notice.
func retries() *backoff.ExponentialBackOff {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = 20 * time.Millisecond
	policy.MaxInterval = time.Second
	policy.Multiplier = 2
	return policy
}

// report is a provider's status of the store.
type report struct {
	from   string // instance ID
	status *consensusv1.StoreStatus
	stream int // number of the stream that delivered it
}

// connection talks to one provider of the store on one connection.
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

// providerOf returns the store's provider if one can be called.
func providerOf(capabilities roles.Capabilities) (roles.Provider, bool) {
	provider, ok := capabilities[roles.CapabilityConsensus]
	return provider, ok && provider.Conn != nil
}

// follow connects to the present provider and disconnects from the one before.
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

// disconnect disconnects from the present provider and forgets its reports.
func (r *Room) disconnect() {
	if r.provider == nil {
		return
	}
	r.provider.cancel()
	r.provider.workers.Wait()
	r.provider = nil
	r.reports.Set(report{})
}

// send sends the provider the newest set: now, at every change, and again if the provider refused it or, as a new stream of reports shows, forgot it.
func (c *connection) send(ctx context.Context) {
	sets, reports := c.sets.Watch(), c.reports.Watch()
	policy := retries()
	var (
		request *consensusv1.SetAccessRequest
		taken   bool // whether the provider accepted request
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
			// Once per reason: a provider refuses for a while when it starts.
			refusal, level = message, hclog.Info
		}
		c.log.Log(level, "The consensus store did not accept the set of instances with access; sending it again", "number", request.GetNumber(),
			"wait", wait, "error", err)
	}
}

func (c *connection) give(ctx context.Context, request *consensusv1.SetAccessRequest) error {
	ctx, cancel := context.WithTimeout(ctx, setWithin)
	defer cancel()
	_, err := c.client.SetAccess(ctx, request)
	return err
}

// calls reports whether a report calls for sending the set: the provider refused it and the store has been formed since, or it accepted it and, on a
// new stream, does not know it.
func (r report) calls(before report, request *consensusv1.SetAccessRequest, taken bool) bool {
	if !taken {
		return r.status.GetFormed() && !before.status.GetFormed()
	}
	forgotten := r.status.GetCoreStart() != request.GetCoreStart() || r.status.GetAccessNumber() < request.GetNumber()
	return r.status != nil && r.stream != before.stream && forgotten
}

// receive publishes the provider's reports, and an empty one while there are none.
func (c *connection) receive(ctx context.Context) {
	policy := retries()
	for stream := 1; ; stream++ {
		err := c.watch(ctx, stream, policy.Reset)
		if ctx.Err() != nil {
			return
		}
		c.reports.Set(report{from: c.instanceID, stream: stream})
		wait := policy.NextBackOff()
		c.log.Debug("The consensus store sends no reports; asking again", "wait", wait, "error", err)
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
