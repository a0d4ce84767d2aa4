package target

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/fault"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Own is the own API of a node, as it is reached while the cluster does not answer.
type Own struct {
	Node
	// Address is where it is: host:port, or a directory or socket of this machine.
	Address string
	API     nodev1.NodeServiceClient
}

// OwnAPIs are those of all nodes that can be found without the cluster API, and the ID of their cluster: the local node, those of the dev directory, those that the context knows, and those that are
// given, as ID=host:port. Whether they answer is not known.
func (t *Target) OwnAPIs(ctx context.Context, given []string) (found []Own, clusterID string, err error) {
	if t.local != nil {
		status, err := t.LocalStatus(ctx)
		if err != nil {
			return nil, "", err
		}
		clusterID = status.GetCluster().GetClusterId()
		found = append(found, Own{Node: Node{ID: status.GetNodeId(), Local: true}, Address: t.way.local(), API: nodev1.NewNodeServiceClient(t.local)})
		found = append(found, t.besides(ctx, clusterID)...)
	}
	if t.way.context != nil {
		clusterID = t.way.context.ClusterID()
	}
	addresses := make(map[string]string)
	if t.known != nil {
		for _, id := range t.known.nodeIDs() {
			addresses[id] = t.known.node(id)
		}
	}
	for _, one := range given {
		id, address, ok := strings.Cut(one, "=")
		if !ok || id == "" || !usable(address) {
			return nil, "", fault.New(fault.Usage, fmt.Sprintf("%q is not ID=host:port", one), "Give the ID of the node and where it serves its own API.")
		}
		addresses[id] = address
	}
	for _, own := range found {
		delete(addresses, own.ID)
	}
	if len(addresses) == 0 {
		return found, clusterID, nil
	}
	ca, err := t.CA(ctx)
	if err == nil {
		err = t.prepareTrust(ca)
	}
	if err != nil {
		return nil, "", err
	}
	for id, address := range addresses {
		conn, err := t.dialNode(address, id)
		if err != nil {
			return nil, "", fault.Wrap(fault.Failed, err, "no connection to node "+id+" can be made", "")
		}
		t.others = append(t.others, conn)
		found = append(found, Own{Node: Node{ID: id}, Address: address, API: nodev1.NewNodeServiceClient(conn)})
	}
	slices.SortFunc(found, func(a, b Own) int { return strings.Compare(a.ID, b.ID) })
	return found, clusterID, nil
}

// besides are the other nodes of a dev directory that run.
func (t *Target) besides(ctx context.Context, clusterID string) (found []Own) {
	if t.way.dir == "" {
		return nil
	}
	root, err := filepath.Abs(t.way.dir)
	if err != nil {
		return nil
	}
	own := root
	if filepath.Base(filepath.Dir(root)) == nodesName {
		root = filepath.Dir(filepath.Dir(root))
	}
	others, _ := filepath.Glob(filepath.Join(root, nodesName, "[2-9]"))
	for _, dir := range append([]string{root}, others...) {
		if dir == own {
			continue
		}
		conn, err := connectLocal(ctx, way{dir: dir, keyFile: t.way.keyFile})
		if err != nil {
			continue
		}
		if status, err := localStatus(ctx, conn); err == nil && status.GetCluster().GetClusterId() == clusterID {
			t.others = append(t.others, conn)
			found = append(found, Own{Node: Node{ID: status.GetNodeId()}, Address: dir, API: nodev1.NewNodeServiceClient(conn)})
			continue
		}
		_ = conn.Close()
	}
	return found
}

func localStatus(ctx context.Context, conn *grpc.ClientConn) (*nodev1.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	response, err := nodev1.NewNodeServiceClient(conn).GetStatus(ctx, &nodev1.GetStatusRequest{})
	return response.GetStatus(), err
}
