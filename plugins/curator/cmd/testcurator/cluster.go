package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// patience bounds what waits for a busy machine.
	patience = 2 * time.Minute
	// heartbeatTTL is longer than any test takes: a heartbeat ends when the test says so.
	heartbeatTTL = time.Hour
	roleName     = "curator"
)

// Cluster is what a test calls. It makes one call at a time.
type Cluster struct {
	raw, client *clientv3.Client
	records     *store.Store
	bootstrap   *bootstrap.Service
	// clusterID and nodeID are the cluster's and the first node's.
	clusterID, nodeID string
	hidden            string // the key of the CA, while it is hidden
	// clock is the time of the cluster, in nanoseconds since 1970. It stands still.
	clock atomic.Int64

	cancel  context.CancelFunc
	running sync.WaitGroup
	err     error // of the curator, once it has ended
}

func newCluster(raw *clientv3.Client, prefix string) *Cluster {
	client := etcdtest.Below(raw, prefix)
	c := &Cluster{raw: raw, client: client, records: store.New(store.Config{Client: client, ClusterUser: roleName, AnswerWithin: patience})}
	c.bootstrap = bootstrap.NewService(c.now)
	return c
}

func (c *Cluster) now() time.Time { return time.Unix(0, c.clock.Load()) }

// host is the node of a curator.
type host struct {
	ready    event.Value[bool]
	endpoint event.Value[string]
	network  event.Value[[]string]
}

func (h *host) Ready()                          { h.ready.Set(true) }
func (h *host) Degraded(string)                 {}
func (h *host) SetEndpoint(_, address string)   { h.endpoint.Set(address) }
func (h *host) SetValue(string, string)         {}
func (h *host) Network() *event.Value[[]string] { return &h.network }

// StartRequest says which cluster the curator serves.
type StartRequest struct {
	// Bootstrap is a clusterv1.BootstrapRequest. Where the cluster was made with it already, the curator starts again.
	Bootstrap []byte
	// Nodes are NodeRecords of nodes that are in the cluster beside the first one.
	Nodes [][]byte
	// Clock is the time, in nanoseconds since 1970.
	Clock int64
}

// StartResponse is where a curator serves.
type StartResponse struct {
	Address string
	// Bootstrap is a clusterv1.BootstrapResponse.
	Bootstrap []byte
}

// Start starts the curator, and returns when it serves.
func (c *Cluster) Start(request StartRequest, response *StartResponse) error {
	if c.cancel != nil {
		return errors.New("the curator runs already")
	}
	asked := new(clusterv1.BootstrapRequest)
	if err := proto.Unmarshal(request.Bootstrap, asked); err != nil {
		return err
	}
	c.clock.Store(request.Clock)
	c.clusterID = asked.GetClusterId()
	c.nodeID = identity.NodeID(asked.GetNodePublicKey())
	at := new(host)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.running.Go(func() {
		c.err = server.Run(ctx, server.Config{
			Client: c.client, Leases: clientv3.RetryLeaseClient(c.raw), ClusterUser: roleName, Bootstrap: c.bootstrap, Host: at, NodeID: c.nodeID, Role: roleName,
			Configuration: configuration.Configuration{Listen: "127.0.0.1:0"}, Log: hclog.NewNullLogger(), Now: c.now, HeartbeatTTL: heartbeatTTL, AnswerWithin: patience,
			// The audit log has every call, however many a test makes.
			ProvenBurst: 1 << 20,
			Snapshots:   snapshots{c},
		})
	})
	c.running.Go(func() { obey(ctx, c.client) })
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, err := c.bootstrap.Bootstrap(bounded, asked)
	if err != nil {
		return err
	}
	if response.Bootstrap, err = proto.Marshal(made); err != nil {
		return err
	}
	if err := c.put(bounded, request.Nodes); err != nil {
		return err
	}
	if _, err := at.ready.Wait(bounded, func(ready bool) bool { return ready }); err != nil {
		return fmt.Errorf("the curator does not serve: %w", err)
	}
	response.Address, _ = at.endpoint.Get()
	return nil
}

// Stop stops the curator: its calls end, and Start starts it again at another address.
func (c *Cluster) Stop(struct{}, *struct{}) error { return c.stop() }

func (c *Cluster) stop() error {
	if c.cancel == nil {
		return nil
	}
	c.cancel()
	c.cancel = nil
	c.running.Wait()
	return c.err
}

// obey plays the consensus store: each member that the cluster wants is there at once. It ends with ctx.
func obey(ctx context.Context, client *clientv3.Client) {
	for changes := range client.Watch(ctx, consensusv1.DesiredStateKey, clientv3.WithRev(1)) {
		for _, event := range changes.Events {
			desired := new(consensusv1.DesiredState)
			if err := proto.Unmarshal(event.Kv.Value, desired); err != nil {
				panic(err)
			}
			told := &consensusv1.StoreState{DesiredRevision: event.Kv.ModRevision}
			for _, node := range desired.GetMembers() {
				member := node[len(node)-16:]
				if slices.Contains(desired.ReplacedMembers, member) {
					member = "ee" + member[2:]
				}
				told.Members = append(told.Members, &consensusv1.StoreStateMember{NodeId: node, MemberId: member, Healthy: true})
			}
			value, err := proto.Marshal(told)
			if err != nil {
				panic(err)
			}
			// Without an answer the curator has ended, or the whole program does.
			_, _ = client.Put(ctx, consensusv1.StoreStateKey, string(value))
		}
	}
}

// SetClock sets the time of the cluster, in nanoseconds since 1970.
func (c *Cluster) SetClock(clock int64, _ *struct{}) error {
	c.clock.Store(clock)
	return nil
}

// PutNode writes a NodeRecord as it is.
func (c *Cluster) PutNode(record []byte, _ *struct{}) error {
	return c.put(context.Background(), [][]byte{record})
}

func (c *Cluster) put(ctx context.Context, encoded [][]byte) error {
	if len(encoded) == 0 {
		return nil
	}
	change := new(store.Change)
	for _, one := range encoded {
		node := new(clusterv1.NodeRecord)
		if err := proto.Unmarshal(one, node); err != nil {
			return err
		}
		change.Nodes = append(change.Nodes, node)
	}
	_, err := c.records.Update(ctx, ritual{c.now()}, func(*store.State) (*store.Change, error) { return change, nil })
	return err
}

// ritual is the call of a change that no RPC makes.
type ritual struct{ at time.Time }

func (r ritual) Entry() *clusterv1.AuditEntry {
	return &clusterv1.AuditEntry{Time: timestamppb.New(r.at), Rpc: "Test", Caller: "test", Code: "OK"}
}

func (ritual) Kept() {}

// ReplaceOwner takes a clusterv1.ReplaceOwnerRequest, as from the core of the first node, and answers with a clusterv1.ReplaceOwnerResponse.
func (c *Cluster) ReplaceOwner(encoded []byte, answer *[]byte) error {
	request := new(clusterv1.ReplaceOwnerRequest)
	if err := proto.Unmarshal(encoded, request); err != nil {
		return err
	}
	response, err := c.bootstrap.ReplaceOwner(context.Background(), request)
	if err != nil {
		return err
	}
	*answer, err = proto.Marshal(response)
	return err
}

// Silence ends the heartbeat of a node.
func (c *Cluster) Silence(node string, _ *struct{}) error {
	lease, err := c.records.Beat(context.Background(), node, heartbeatTTL, clientv3.NoLease)
	if err != nil {
		return err
	}
	_, err = c.raw.Revoke(context.Background(), lease)
	return err
}

// HideSigningKey takes the key of the cluster's CA away, or puts it back: meanwhile the curator issues nothing.
func (c *Cluster) HideSigningKey(hide bool, _ *struct{}) error {
	const key = "authority/key"
	if !hide {
		_, err := c.client.Put(context.Background(), key, c.hidden)
		return err
	}
	got, err := c.client.Delete(context.Background(), key, clientv3.WithPrevKV())
	if err != nil || len(got.PrevKvs) != 1 {
		return fmt.Errorf("%d keys at %s: %w", got.Deleted, key, err)
	}
	c.hidden = string(got.PrevKvs[0].Value)
	return nil
}

// Certificate is a chain, the leaf first, and its key, PKCS #8; all DER.
type Certificate struct {
	Chain [][]byte
	Key   []byte
}

// IssueCurator issues the certificate of another curator of the cluster, which the test plays.
func (c *Cluster) IssueCurator(_ struct{}, issued *Certificate) error {
	authority, err := ca.Load(context.Background(), c.records)
	if err != nil {
		return err
	}
	certificate, err := authority.IssueCurator(c.nodeID, roleName, c.now())
	if err != nil {
		return err
	}
	issued.Chain = certificate.Certificate
	issued.Key, err = x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	return err
}
