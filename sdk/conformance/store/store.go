package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/reeveproject/reeve/sdk/conformance"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// startTime is how long etcd may take to start: far more than usual, because test machines are busy.
const startTime = time.Minute

// root is etcd's superuser. It is only used in this process.
const root = "root"

// Store is a running store.
type Store struct {
	directory string
	server    *embed.Etcd
	client    *clientv3.Client
	api       *grpc.Server
	serving   sync.WaitGroup

	mu    sync.Mutex
	users map[string]*user
}

var _ conformance.Store = (*Store)(nil)

// Open starts a store that runs until it is closed. Use it for conformance.Config.Store.
func Open(ctx context.Context) (conformance.Store, error) {
	// A short path, because socket paths are limited to 107 bytes.
	directory, err := os.MkdirTemp("/tmp", "rs")
	if err != nil {
		return nil, err
	}
	s := &Store{directory: directory, users: make(map[string]*user)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the suite's consensus store does not start: %w", err), s.Close())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	config := embed.NewConfig()
	config.Name, config.Dir = "only", filepath.Join(s.directory, "data")
	// No listener for clients: the API is served here, on a socket for each user.
	peer := url.URL{Scheme: "unix", Path: filepath.Join(s.directory, "peer.sock")}
	config.ListenClientUrls, config.AdvertiseClientUrls = nil, []url.URL{peer}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.Name + "=" + peer.String()
	config.EnableGRPCGateway = false
	// The connection identifies a client. etcd uses a token of its own to revoke expired leases.
	config.ClientTLSInfo.ClientCertAuth, config.AuthToken = true, "simple"
	// A single member elects itself, and nothing outlives the run.
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	s.server = server
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	// Without a cluster version the store refuses clients. It gets one some time after it is ready, without a notification.
	for server.Server.ClusterVersion() == nil || !api.IsCapabilityEnabled(api.V3rpcCapability) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.client = v3client.New(server.Server)
	if err := s.enableAuthorization(as(ctx, root)); err != nil {
		return err
	}
	s.api = v3rpc.Server(server.Server, nil, s.unary, grpc.ChainStreamInterceptor(s.stream), grpc.Creds(transport{}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: embed.DefaultGRPCKeepAliveMinTime}),
		// etcd must not be closed while a call runs.
		grpc.WaitForHandlers(true),
	)
	return nil
}

func (s *Store) enableAuthorization(ctx context.Context) error {
	if _, err := s.client.RoleAdd(ctx, root); err != nil {
		return err
	}
	if _, err := s.client.UserAddWithOptions(ctx, root, "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
		return err
	}
	if _, err := s.client.UserGrantRole(ctx, root, root); err != nil {
		return err
	}
	_, err := s.client.AuthEnable(ctx)
	return err
}

// Close implements conformance.Store.
func (s *Store) Close() error {
	if s.api != nil {
		s.api.Stop()
		s.serving.Wait()
	}
	var err error
	if s.client != nil {
		if err = s.client.Close(); errors.Is(err, context.Canceled) {
			err = nil // the expected error after Close
		}
	}
	if s.server != nil {
		s.server.Close()
	}
	return errors.Join(err, os.RemoveAll(s.directory))
}

// User implements conformance.Store. It returns an existing user unchanged.
func (s *Store) User(ctx context.Context, name string) (conformance.StoreUser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.users[name]; known != nil {
		return known, nil
	}
	ctx = as(ctx, root)
	prefix := consensusv1.UserPrefix(name)
	if _, err := s.client.RoleAdd(ctx, name); err != nil {
		return nil, err
	}
	if _, err := s.client.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		return nil, err
	}
	if _, err := s.client.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
		return nil, err
	}
	if _, err := s.client.UserGrantRole(ctx, name, name); err != nil {
		return nil, err
	}
	made := &user{store: s, name: name, prefix: prefix, socket: filepath.Join(s.directory, fmt.Sprintf("%d.sock", len(s.users)))}
	listener, err := net.Listen("unix", made.socket)
	if err != nil {
		return nil, err
	}
	s.users[name] = made
	s.serving.Go(func() { _ = s.api.Serve(&door{listener, made}) }) // ends with Stop
	return made, nil
}

// full raises or clears etcd's own alarm for a full store.
func (s *Store) full(ctx context.Context, full bool) error {
	action := pb.AlarmRequest_DEACTIVATE
	if full {
		action = pb.AlarmRequest_ACTIVATE
	}
	_, err := s.server.Server.Alarm(as(ctx, root), &pb.AlarmRequest{Action: action, MemberID: uint64(s.server.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE})
	return err
}
