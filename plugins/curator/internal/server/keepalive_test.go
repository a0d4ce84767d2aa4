package server_test

import (
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// pulse is a stream of heartbeats.
type pulse struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]
}

func keepAlive(t *testing.T, client clusterv1.NodeServiceClient) *pulse {
	t.Helper()
	stream, err := client.KeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &pulse{t, stream}
}

// tries sends a heartbeat, and returns what its answer is.
func (p *pulse) tries() (*clusterv1.KeepAliveResponse, error) {
	_ = p.stream.Send(&clusterv1.KeepAliveRequest{}) // if it fails Recv says why
	return p.stream.Recv()
}

func (p *pulse) beats() {
	p.t.Helper()
	response, err := p.tries()
	if err != nil {
		p.t.Fatal(err)
	}
	if response.GetTtlSeconds() != uint32(heartbeatTTL/time.Second) {
		p.t.Errorf("the TTL is %d s", response.GetTtlSeconds())
	}
}

// TestKeepAlive has a node be healthy by the heartbeats of one stream, whatever becomes of its lease, and whichever curator it was at in between.
func TestKeepAlive(t *testing.T) {
	c := newCluster(t)
	healthy := func(r *clusterv1.WatchResponse) bool { return r.GetDirectory().GetNodes()[0].GetHealthy() }
	sick := func(r *clusterv1.WatchResponse) bool { return !healthy(r) }
	w := watch(t, c.asNode())
	w.await("the present state", sick)
	p := keepAlive(t, c.asNode())
	p.beats()
	w.await("health", healthy)
	lease := c.heartbeat(c.id)
	for range 3 {
		p.beats()
	}
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	if again := c.heartbeat(c.id); again != lease {
		t.Errorf("the lease is %x, then %x", lease, again)
	}
	c.silences(c.id)
	w.await("the end of the lease", sick)
	p.beats()
	w.await("health again", healthy)
	// Another curator has the heartbeat go by another lease, and the one before is alive all the same.
	other, err := c.client().Grant(t.Context(), int64(heartbeatTTL/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().Put(t.Context(), "heartbeat/"+c.id, "", clientv3.WithLease(other.ID)); err != nil {
		t.Fatal(err)
	}
	p.beats()
	c.silences(c.id)
	w.await("the end of the other lease", sick)
	p.beats()
	w.await("health by a lease of its own", healthy)
}

// TestKeepAliveEnds has a stream of heartbeats be open while its node is no longer let in: its next heartbeat is refused with the words that a call would be refused with.
func TestKeepAliveEnds(t *testing.T) {
	var later atomic.Int64
	c := newClusterOn(t, etcd, func(config *server.Config) {
		config.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	c.announce()
	t.Run("since it was removed", func(t *testing.T) {
		m := c.member("store")
		p := keepAlive(t, m.as(m.start))
		p.beats()
		w := watch(t, m.as(m.start))
		w.await("itself", func(r *clusterv1.WatchResponse) bool { return r.GetNode().GetId() == m.id })
		c.setState(m.id, clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
		_, err := w.stream.Recv()
		for err == nil {
			_, err = w.stream.Recv()
		}
		_, err = p.tries()
		wantCode(t, err, codes.PermissionDenied, m.id, "removed")
	})
	t.Run("since another start of its core has called", func(t *testing.T) {
		m := c.member("store")
		p := keepAlive(t, m.as(m.start))
		p.beats()
		w := watch(t, m.as(m.start))
		if err := m.beat(incarnation(3)); err != nil {
			t.Fatal(err)
		}
		_, err := w.stream.Recv()
		for err == nil {
			_, err = w.stream.Recv()
		}
		_, err = p.tries()
		wantRefusedStart(t, err, false, 3)
	})
	t.Run("since its certificate has ended", func(t *testing.T) {
		p := keepAlive(t, c.asNode())
		p.beats()
		later.Store(int64(25 * time.Hour))
		_, err := p.tries()
		wantCode(t, err, codes.Unauthenticated, "ended at", "self-signed")
	})
}

// TestKeepAliveEndsWithItsCurator has a curator stop at which a node waits with its next heartbeat: it is told to go on with another at once.
func TestKeepAliveEndsWithItsCurator(t *testing.T) {
	c := newCluster(t)
	p := keepAlive(t, c.asNode())
	p.beats()
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := p.tries()
	wantCode(t, err, codes.Unavailable, "this curator is stopping")
}
