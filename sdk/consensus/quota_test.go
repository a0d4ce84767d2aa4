package consensus_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/consensus"
)

// strict answers every write as a store that is asked for too much: for a quota, or for everybody.
type strict struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	refusal *status.Status
}

func (s *strict) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return nil, s.refusal.Err()
}

func (s *strict) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, s.refusal.Err()
}

func (s *strict) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, s.refusal.Err()
}

func TestOverQuota(t *testing.T) {
	const message = "consensus: the user lighthouse may have 10 bytes in the store and has 9; this request would add 2"
	refusal, err := status.New(codes.ResourceExhausted, message).WithDetails(
		&consensusv1.UserUsage{ConsensusUser: "lighthouse", Bytes: 9, BytesQuota: 10, Leases: 3, LeasesQuota: 4})
	if err != nil {
		t.Fatal(err)
	}
	answers := &strict{refusal: refusal}
	socket := filepath.Join(directory(t), "consensus.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan struct{})
	pb.RegisterKVServer(server, answers)
	pb.RegisterLeaseServer(server, answers)
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	defer func() {
		server.Stop()
		<-served
	}()
	host := newCore(t)
	host.answer.Set(&hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{
		Socket: socket, ConsensusUser: "lighthouse", Prefix: "/reeve/users/lighthouse/",
	}}})
	client, err := consensus.Dial(shortly(t), host)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	calls := map[string]func(*consensus.Client) error{
		"put": func(c *consensus.Client) error { _, err := c.Put(shortly(t), "key", "v"); return err },
		"txn": func(c *consensus.Client) error {
			_, err := c.Txn(shortly(t)).Then(clientv3.OpPut("key", "v")).Commit()
			return err
		},
		"grant": func(c *consensus.Client) error { _, err := c.Grant(shortly(t), 60); return err },
	}
	sub := client.Sub("part")
	for name, call := range calls {
		for _, c := range []*consensus.Client{client, sub} {
			err := call(c)
			var over *consensus.OverQuotaError
			if !errors.Is(err, consensus.ErrOverQuota) || !errors.As(err, &over) || over.Bytes != 9 || over.BytesQuota != 10 || over.Leases != 3 || over.LeasesQuota != 4 {
				t.Errorf("%s: %v (%T, %+v), want ErrOverQuota", name, err, err, over)
			}
			if err == nil || !strings.Contains(err.Error(), message) || status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: %v, want what the store said", name, err)
			}
		}
	}
	// A store without room is another matter, and so is what else etcd refuses for being too much.
	for _, other := range []error{rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCRequestTooManyRequests, status.Error(codes.ResourceExhausted, message)} {
		answers.refusal = status.Convert(other)
		if err := calls["put"](client); err == nil || errors.Is(err, consensus.ErrOverQuota) {
			t.Errorf("%v: %v", other, err)
		}
	}
}
