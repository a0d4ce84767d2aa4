package command_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/reeveproject/reeve/cli/internal/testcluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// joined is what a node that has registered keeps in its system directory.
type joined struct {
	// Number is the number of its key.
	Number  uint32 `json:"number"`
	CA      []byte `json:"ca"`
	Cluster string `json:"cluster"`
	Curator string `json:"curator"`
}

// join runs a node that registers with the cluster of its ticket, and then is a member of it.
func join(ctx context.Context, parameters *nodev1.Parameters, behaviour string) error {
	file := filepath.Join(parameters.GetDirectories().GetSystem(), "joined.json")
	kept := &joined{}
	if content, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(content, kept); err != nil {
			return err
		}
	} else {
		if behaviour == "stuck" {
			<-ctx.Done()
			return nil
		}
		if kept, err = register(ctx, parameters); err != nil {
			return err
		}
		content, err := json.Marshal(kept)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600)); err != nil {
			return err
		}
	}
	cluster, err := kept.serve(parameters, hostv1.MembershipState_MEMBERSHIP_STATE_HOME)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.end() }()
	<-ctx.Done()
	return nil
}

// serve serves the node's own API in a state of its membership. A member does what the cluster decides.
func (j *joined) serve(parameters *nodev1.Parameters, state hostv1.MembershipState) (*cluster, error) {
	node := newNode(j.Number)
	node.status.Addresses = parameters.GetNetwork().GetAddresses()
	c := &cluster{Cluster: testcluster.Join(j.Cluster, j.Curator, j.CA, scriptTime(os.Getenv("CLOCK")), node.Node)}
	err := c.begin(state == hostv1.MembershipState_MEMBERSHIP_STATE_HOME, node)
	if err == nil {
		c.setMembership(state, "")
		socket := filepath.Join(parameters.GetDirectories().GetRun(), "node.sock")
		_ = os.Remove(socket)
		err = c.serveLocal(socket)
	}
	if err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// register registers and returns when the cluster has taken the node in.
func register(ctx context.Context, parameters *nodev1.Parameters) (*joined, error) {
	asks := parameters.GetRegister()
	content, err := os.ReadFile(asks.GetTicketFile())
	if err != nil {
		return nil, err
	}
	text, err := ticket.Parse(string(content))
	if err != nil {
		return nil, err
	}
	kept := &joined{Number: rand.Uint32(), Cluster: text.GetClusterId(), Curator: text.GetCurators()[0]}
	node := newNode(kept.Number)
	conn, err := testcluster.Join(kept.Cluster, kept.Curator, nil, scriptTime(os.Getenv("CLOCK")), node.Node).Dial(node.Key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	client := clusterv1.NewEnrolmentServiceClient(conn)
	joinKey, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	request := &clusterv1.RegisterRequest{
		TicketId: text.GetTicketId(), TicketSecret: text.GetSecret(), JoinPublicKey: joinKey, Labels: asks.GetLabels(), Version: "0.1.0",
		Addresses: parameters.GetNetwork().GetAddresses(), Sealer: "file", Volume: "plain",
	}
	for _, role := range asks.GetRoles() {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	}
	registered, err := client.Register(ctx, request)
	if err != nil {
		return nil, err
	}
	kept.CA = registered.GetCaCertificates()[0]
	waits, err := kept.serve(parameters, hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN)
	if err != nil {
		return nil, err
	}
	defer func() { _ = waits.end() }()
	stream, err := client.Await(ctx, &clusterv1.AwaitRequest{})
	for err == nil {
		var now *clusterv1.AwaitResponse
		if now, err = stream.Recv(); now.GetState() == clusterv1.NodeState_NODE_STATE_STANDBY {
			break
		}
	}
	if err == nil {
		_, err = client.Commit(ctx, &clusterv1.CommitRequest{Incarnation: testcluster.FirstStart})
	}
	return kept, err
}
