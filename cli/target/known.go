package target

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// A context keeps no more addresses than these: enough to find the cluster again, and then the cluster says the rest.
const (
	maxCurators = 16
	maxNodes    = 64
)

// known is where the cluster of a context is: what the context says, and then what the cluster's answers say, as they come by.
type known struct {
	// given is the address that a person gave; it is never forgotten, as it may be the only one that leads there from outside.
	given string

	mu       sync.Mutex
	curators []string
	nodes    map[string]string
	changed  bool
}

func newKnown(from *contexts.Context) *known {
	k := &known{given: from.Address, curators: slices.Clone(from.Curators), nodes: make(map[string]string)}
	for _, node := range from.Nodes {
		k.nodes[node.ID] = node.Address
	}
	return k
}

// addresses are those at which a curator may be, the likeliest first.
func (k *known) addresses() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	addresses := slices.Clone(k.curators)
	if k.given != "" && !slices.Contains(addresses, k.given) {
		addresses = append(addresses, k.given)
	}
	return addresses
}

// node is the address of a node's own API; empty: it is not known.
func (k *known) node(id string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[id]
}

func (k *known) nodeIDs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.nodes))
}

// setCurators replaces the addresses of the curators by those that the cluster says, if it says any.
func (k *known) setCurators(addresses []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replaceCurators(addresses)
}

func (k *known) replaceCurators(addresses []string) {
	var fresh []string
	for _, address := range addresses {
		if usable(address) && !slices.Contains(fresh, address) && len(fresh) < maxCurators {
			fresh = append(fresh, address)
		}
	}
	if len(fresh) > 0 && !slices.Equal(fresh, k.curators) {
		k.curators, k.changed = fresh, true
	}
}

func usable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && host != "" && port != ""
}

// learn is an interceptor that sees where the answers of the cluster API say that nodes and curators are.
func (k *known) learn(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if err := invoke(ctx, method, request, reply, conn, options...); err != nil {
		return err
	}
	switch answer := reply.(type) {
	case *clusterv1.ListNodesResponse:
		if asked, ok := request.(*clusterv1.ListNodesRequest); ok && asked.GetAfter() == "" && !answer.GetMore() {
			k.seeAll(answer.GetNodes())
			return nil
		}
		for _, node := range answer.GetNodes() {
			k.seeOne(node)
		}
	case *clusterv1.GetNodeResponse:
		k.seeOne(answer.GetNode())
	}
	return nil
}

func (k *known) seeAll(all []*clusterv1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var addresses []string
	nodes := make(map[string]string)
	for _, node := range all {
		addresses = append(addresses, curatorsOf(node)...)
		if api := node.GetStatus().GetApiAddress(); usable(api) && len(nodes) < maxNodes {
			nodes[node.GetRecord().GetId()] = api
		}
	}
	k.replaceCurators(addresses)
	if !maps.Equal(nodes, k.nodes) {
		k.nodes, k.changed = nodes, true
	}
}

func (k *known) seeOne(node *clusterv1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replaceCurators(append(curatorsOf(node), k.curators...))
	id, api := node.GetRecord().GetId(), node.GetStatus().GetApiAddress()
	if _, there := k.nodes[id]; usable(api) && k.nodes[id] != api && (there || len(k.nodes) < maxNodes) {
		k.nodes[id], k.changed = api, true
	}
}

// curatorsOf are the addresses at which the instances of a node serve the cluster API.
func curatorsOf(node *clusterv1.Node) []string {
	var addresses []string
	for _, instance := range node.GetStatus().GetInstances() {
		for _, endpoint := range instance.GetEndpoints() {
			if endpoint.GetName() == output.ClusterEndpoint {
				addresses = append(addresses, endpoint.GetAddress())
			}
		}
	}
	return addresses
}

// keepTimeout bounds how long a command waits for others to write contexts. What it learnt is worth no more: the next one learns it again.
const keepTimeout = time.Second

// keep writes into the context where its cluster is, if that has changed.
func (k *known) keep(store *contexts.Store, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.changed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	// What the command was for is done; a directory that cannot be written is reported when something has to be written there.
	_ = store.Update(ctx, func(config *contexts.Config) error {
		if context := config.Find(name); context != nil {
			k.into(context)
		}
		return nil
	})
}

// into writes what is known into a context.
func (k *known) into(context *contexts.Context) {
	context.Curators = slices.Clone(k.curators)
	context.Nodes = nil
	for _, id := range slices.Sorted(maps.Keys(k.nodes)) {
		context.Nodes = append(context.Nodes, contexts.Node{ID: id, Address: k.nodes[id]})
	}
}

// askNodes asks all nodes that the context knows at once how they are, and has try look at what each says, in the order in which they answer, until it says that it has seen
// enough.
func (t *Target) askNodes(ctx context.Context, try func(*nodev1.Status) bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	nodes, answers := t.known.nodeIDs(), make(chan *nodev1.Status)
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, id := range nodes {
		asking.Go(func() {
			select {
			case answers <- t.askNode(ctx, id):
			case <-ctx.Done():
			}
		})
	}
	// This comes before the waiting for those who still ask.
	defer cancel()
	for range nodes {
		select {
		case said := <-answers:
			if said != nil && try(said) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (t *Target) askNode(ctx context.Context, id string) *nodev1.Status {
	conn, err := t.dialNode(t.known.node(id), id)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	response, err := nodev1.NewNodeServiceClient(conn).GetStatus(ctx, &nodev1.GetStatusRequest{})
	if err != nil {
		return nil
	}
	return response.GetStatus()
}
