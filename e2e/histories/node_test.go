package histories_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// clusterAPI is the name of the endpoint at which a curator serves the cluster API.
const clusterAPI = "reeve.cluster.v1"

// node is one of the cluster's, as its own API shows it: that can be asked whatever becomes of the network.
type node struct {
	number    int
	directory string
	// id is set once, when the node has been seen for the first time.
	id string
	// status is nil while the node does not answer.
	status event.Value[*nodev1.Status]
}

// newNode follows a node until the context ends; watching counts the goroutines.
func newNode(ctx context.Context, t *testing.T, c *devcluster.Cluster, number int, watching *sync.WaitGroup) *node {
	t.Helper()
	n := &node{number: number, directory: c.NodeDirectory(number)}
	conn, err := grpc.NewClient("passthrough:///node.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			// The path by way of the dev directory may be too long for a socket.
			run, err := filepath.EvalSymlinks(filepath.Join(n.directory, "run"))
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(run, "node.sock"))
		}))
	if err != nil {
		t.Fatal(err)
	}
	watching.Go(func() {
		defer func() { _ = conn.Close() }()
		for ctx.Err() == nil {
			n.watch(ctx, nodev1.NewNodeServiceClient(conn))
			n.status.Set(nil)
		}
	})
	return n
}

// watch follows the status until the stream breaks.
func (n *node) watch(ctx context.Context, api nodev1.NodeServiceClient) {
	stream, err := api.WatchStatus(ctx, &nodev1.WatchStatusRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var response *nodev1.WatchStatusResponse
		if response, err = stream.Recv(); err == nil {
			n.status.Set(response.GetStatus())
		}
	}
}

// await waits until the node is as it should be.
func (n *node) await(t *testing.T, what string, as func(*nodev1.Status) bool) *nodev1.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status, err := n.status.Wait(ctx, as)
	if err != nil {
		last, _ := n.status.Get()
		t.Fatalf("not within %s: node %d %s; last seen: %s", patience, n.number, what, show(last))
	}
	return status
}

// show is a status for people who look at a failed test.
func show(status *nodev1.Status) string {
	if status == nil {
		return "it does not answer"
	}
	var text strings.Builder
	text.WriteString(status.GetMembership().GetState().String() + " (" + status.GetMembership().GetReason() + ")")
	for _, instance := range status.GetNode().GetInstances() {
		text.WriteString("; " + instance.GetRole() + " " + instance.GetState().String() + " (" + instance.GetReason() + ")")
	}
	return text.String()
}

// instance is a role of a node; nil if it does not have it.
func instance(status *nodev1.Status, role string) *clusterv1.InstanceStatus {
	all := status.GetNode().GetInstances()
	if i := slices.IndexFunc(all, func(one *clusterv1.InstanceStatus) bool { return one.GetRole() == role }); i >= 0 {
		return all[i]
	}
	return nil
}

// address is where the curator of a node serves; empty: it does not.
func address(status *nodev1.Status) string {
	for _, endpoint := range instance(status, "curator").GetEndpoints() {
		if endpoint.GetName() == clusterAPI {
			return endpoint.GetAddress()
		}
	}
	return ""
}

// serves says whether a node votes in the store, which has a leader, and its curator is ready.
func serves(status *nodev1.Status) bool {
	store := status.GetStore()
	return store.GetVoter() && store.GetQuorum() && store.GetLeaderId() != "" && address(status) != "" &&
		instance(status, "curator").GetState() == hostv1.InstanceState_INSTANCE_STATE_READY
}
