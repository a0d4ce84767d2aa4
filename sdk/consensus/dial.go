package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// keepAlive is how often a connection with running calls is probed, and keepAliveAnswer the timeout of the answer. A dead server closes its
	// socket; this finds one that hangs. etcd refuses clients that probe more often than every 5 s.
	keepAlive       = 10 * time.Second
	keepAliveAnswer = 5 * time.Second
	// maxReconnect is the longest pause between two attempts to connect. A restarted store should be used at once, and dialing a Unix socket costs
	// almost nothing.
	maxReconnect = time.Second
	// maxMessage is the largest answer of the store in bytes, clientv3's default.
	maxMessage = 1<<31 - 1
)

// Host is what Dial needs of the host. *role.Host implements it.
type Host interface {
	Client() hostv1.HostServiceClient
}

// Dial opens the store for the role. It waits until ctx ends while the store is starting or the core is away. If waiting does not help, it returns at
// once with ErrNoLocalConsensus, ErrUnknownUser, ErrNotMember or ErrNotGranted, by errors.Is. The Client outlives ctx: Close it.
func Dial(ctx context.Context, host Host) (*Client, error) {
	open, err := waitOpen(ctx, host.Client())
	if err != nil {
		return nil, err
	}
	return connect(open)
}

// waitOpen waits until the host says that the store is open.
func waitOpen(ctx context.Context, host hostv1.HostServiceClient) (*hostv1.ConsensusOpen, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waitingFor := ""
	for {
		stream, err := host.OpenConsensus(ctx, &hostv1.OpenConsensusRequest{})
		for err == nil {
			var response *hostv1.OpenConsensusResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			if open := response.GetOpen(); open != nil {
				return open, nil
			}
			if err := unavailable(response.GetUnavailable()); err != nil {
				return nil, err
			}
			waitingFor = response.GetUnavailable().GetMessage()
		}
		if ctx.Err() != nil {
			if waitingFor == "" {
				waitingFor = "the core of the node"
			}
			return nil, fmt.Errorf("consensus: waiting for %s: %w", waitingFor, ctx.Err())
		}
		if !passing(err) {
			return nil, fmt.Errorf("consensus: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopen):
		}
	}
}

// reopen is the pause before the core is asked again after it went away.
const reopen = 100 * time.Millisecond

// passing reports whether an error of the stream is worth a retry: the core went away, ended the stream cleanly, or noticed the caller's deadline a
// moment before the caller.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted, codes.Internal:
		return true
	}
	return errors.Is(err, io.EOF)
}

// connect makes the client of an open store. It does not wait for the connection, which is made at the first call, and again whenever it is lost.
func connect(open *hostv1.ConsensusOpen) (*Client, error) {
	socket, prefix := open.GetSocket(), open.GetPrefix()
	if socket == "" || !strings.HasSuffix(prefix, "/") {
		return nil, fmt.Errorf("consensus: the host opened the socket %q with the prefix %q: want a path, and a prefix that ends with a slash", socket, prefix)
	}
	dialer := &net.Dialer{}
	raw, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"unix://" + socket},
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveAnswer,
		MaxCallRecvMsgSize:   maxMessage,
		// Errors are returned to the caller instead of logged.
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(tellOverQuota),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
				MinConnectTimeout: 5 * time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("consensus: %s: %w", socket, err)
	}
	return newClient(raw, socket, open.GetConsensusUser(), prefix), nil
}
