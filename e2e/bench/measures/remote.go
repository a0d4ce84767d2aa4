package measures

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// remote measures from the beginning of the call by which a role is added to a node, at the curator of another one, to the Ready of the role: as its own node
// says, and as the other curator tells who watches the node there, as the command line does.
func (b *Bed) remote(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	const name = "lighthouse"
	// A node tells at once only so much in a row: two of them are asked in turn, and not more often than that.
	warm, count := b.count(2, 24)
	c, err := b.runningCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	near := c.nodes[0]
	management, done, err := near.managementAt(near.curator())
	if err != nil {
		return nil, err
	}
	defer done()
	following, stop := context.WithCancel(ctx)
	defer stop()
	var watches []grpc.ServerStreamingClient[clusterv1.WatchNodeResponse]
	for _, far := range c.nodes[1:] {
		if err := far.addPlugin(ctx, b.Programs.lighthouse()); err != nil {
			return nil, err
		}
		watch, err := management.WatchNode(following, &clusterv1.WatchNodeRequest{NodeId: far.last.GetNodeId()})
		if err != nil {
			return nil, err
		}
		watches = append(watches, watch)
	}
	say("%d times", count)
	var there, here []float64
	for i := range warm + count {
		far, watch := c.nodes[1+i%len(watches)], watches[i%len(watches)]
		// told waits until the curator says that the role is Ready, or that it is not there.
		told := func(is bool) error {
			defer time.AfterFunc(patience, stop).Stop()
			for {
				response, err := watch.Recv()
				if err != nil {
					return err
				}
				instance := instanceIn(response.GetNode().GetStatus(), name)
				if is && instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY || !is && instance == nil {
					return nil
				}
			}
		}
		begun := time.Now()
		if err := add(ctx, management, far.last.GetNodeId(), name); err != nil {
			return nil, err
		}
		if err := far.await(ctx, name+" Ready", func(s *nodev1.Status) bool { return ready(s, name) }); err != nil {
			return nil, err
		}
		atNode := time.Since(begun)
		if err := told(true); err != nil {
			return nil, err
		}
		atCurator := time.Since(begun)
		if i >= warm {
			there, here = append(there, milliseconds(atNode)), append(here, milliseconds(atCurator))
		}
		if err := far.removeRole(ctx, name); err != nil {
			return nil, err
		}
		if err := told(false); err != nil {
			return nil, err
		}
	}
	result := bench.Result{Unit: "ms", Notes: []string{"three nodes; the role is examples/lighthouse, the plugin is known and its executable is on the node; the connection stands"}}
	result.Name, result.What = "Ready, p50", "role added at the curator of another node, to Ready as the role's node says"
	results = append(results, bench.OfSamples(result, bench.P50, bench.AtMost(200), there))
	result.Name, result.What = "Ready, told, p50", "role added at the curator of another node, to Ready as that curator tells"
	results = append(results, bench.OfSamples(result, bench.P50, bench.AtMost(200), here))
	result.Name = "Ready, told, p99"
	return append(results, bench.OfSamples(result, bench.P99, bench.Any(), here)), nil
}

// add has a node run a role.
func add(ctx context.Context, management clusterv1.ManagementServiceClient, node, role string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := management.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: node, Role: role})
	return err
}
