package enrol

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/spread"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// dialTimeout is the timeout for reaching the machine of one curator before the next is tried: its kernel answers, however busy it is.
	dialTimeout = 3 * time.Second
	// connectTimeout is the timeout for a whole connection to one curator. The TLS handshake needs the processors of both machines: a curator on a slow
	// one would never be reached with less time.
	connectTimeout = 10 * time.Second
	// callTimeout is the timeout of one curator's answer: it takes milliseconds, or seconds while the store elects a leader.
	callTimeout = 10 * time.Second
)

// Config configures a Client.
type Config struct {
	// Log is the client's log; nil discards it.
	Log hclog.Logger
	// ClusterID is the cluster that the node joins or is a member of.
	ClusterID string
	// NodeID is the node. A tombstone must name it.
	NodeID string
	// Key proves the node: the join key for Join, the node key for the other calls.
	Key ed25519.PrivateKey
	// Pins are the SHA-256 hashes of the public keys (SubjectPublicKeyInfo, DER) of the cluster CA's certificates.
	Pins [][]byte
	// Curators returns the host:port of every known curator. It is called for every call.
	Curators func() []string
	// Dial connects to a curator's host:port; nil: plain TCP without a proxy, whatever the environment says.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Client calls the EnrolmentService. It is safe for concurrent use.
type Client struct {
	config Config
	// connectTimeout and callTimeout are the constants, but in tests.
	connectTimeout, callTimeout time.Duration

	mu sync.Mutex
	// last is the curator that answered last. It is asked first, because other curators may see its changes a moment later.
	last string
}

// New returns a client. It connects at each call.
func New(config Config) *Client {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Dial == nil {
		config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTimeout}
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	return &Client{config: config, connectTimeout: connectTimeout, callTimeout: callTimeout}
}

// Register makes the cluster record the node.
func (c *Client) Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	return unary(ctx, c, "Register", request, clusterv1.EnrolmentServiceClient.Register)
}

// Await calls each with the present state of the node's record and after every change, until the context or the stream ends, and returns why. Call it
// again while the state is not final.
func (c *Client) Await(ctx context.Context, each func(*clusterv1.AwaitResponse)) error {
	return c.try(ctx, "Await", func(ctx context.Context, api clusterv1.EnrolmentServiceClient) (bool, error) {
		return await(ctx, api, c.callTimeout, each)
	})
}

// Commit hands the node's CUK to the cluster, and returns what a member needs.
func (c *Client) Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	return unary(ctx, c, "Commit", request, clusterv1.EnrolmentServiceClient.Commit)
}

// Join returns the CUK of the node that the join key belongs to.
func (c *Client) Join(ctx context.Context, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
	return unary(ctx, c, "Join", request, clusterv1.EnrolmentServiceClient.Join)
}

func unary[Q, A any](
	ctx context.Context, c *Client, call string, request *Q,
	do func(clusterv1.EnrolmentServiceClient, context.Context, *Q, ...grpc.CallOption) (*A, error),
) (*A, error) {
	var answer *A
	err := c.try(ctx, call, func(ctx context.Context, api clusterv1.EnrolmentServiceClient) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
		defer cancel()
		var err error
		answer, err = do(api, ctx, request)
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// errSilent ends a stream that delivers nothing.
var errSilent = fmt.Errorf("it accepted the call but sent nothing for %s", callTimeout)

func await(ctx context.Context, api clusterv1.EnrolmentServiceClient, timeout time.Duration, each func(*clusterv1.AwaitResponse)) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(timeout, func() { cancel(errSilent) })
	defer late.Stop()
	stream, err := api.Await(ctx, &clusterv1.AwaitRequest{})
	if err != nil {
		return false, err
	}
	for {
		response, err := stream.Recv()
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			return false, errSilent
		case errors.Is(err, io.EOF):
			return answered, errors.New("it ended the stream")
		case err != nil:
			return answered, err
		}
		late.Stop()
		answered = true
		each(response)
	}
}

// try calls the curators in turn until one answers, whatever the answer is.
func (c *Client) try(ctx context.Context, call string, do func(context.Context, clusterv1.EnrolmentServiceClient) (answered bool, err error)) error {
	if len(c.config.Pins) == 0 {
		return fmt.Errorf("enrol: %s: no CA of cluster %s is pinned, so no curator can be trusted", call, c.config.ClusterID)
	}
	curators := c.order()
	if len(curators) == 0 {
		return fmt.Errorf("enrol: %s: no address of a curator of cluster %s is known", call, c.config.ClusterID)
	}
	var problems []string
	var unpinned []shown
	var since time.Time
	for _, address := range curators {
		answered, err := c.at(ctx, call, address, do)
		if answered {
			c.mu.Lock()
			c.last = address
			c.mu.Unlock()
		}
		var pin *pinFailure
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("enrol: %s: %w", call, context.Cause(ctx))
		case errors.As(err, &pin):
			unpinned = append(unpinned, shown{address, pin.pins})
			if pin.since.After(since) {
				since = pin.since
			}
		case final(err):
			return err
		}
		c.config.Log.Debug("a curator did not answer", "call", call, "curator", address, "error", err)
		problems = append(problems, fmt.Sprintf("%s: %v", address, err))
		if answered {
			break // the stream did its work; the next call asks the others
		}
	}
	if len(unpinned) == len(curators) {
		return &PinError{ClusterID: c.config.ClusterID, NodeID: c.config.NodeID, Call: call, Since: since, Pinned: slices.Clone(c.config.Pins), shown: unpinned}
	}
	return fmt.Errorf("enrol: %s: no curator of cluster %s answered: %s", call, c.config.ClusterID, strings.Join(problems, "; "))
}

// order returns the curators: first the one that answered last, then the others in an order that spreads the nodes.
func (c *Client) order() []string {
	var known []string
	if c.config.Curators != nil {
		known = c.config.Curators()
	}
	list := spread.Order(c.config.NodeID, known)
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(list, c.last); at > 0 {
		list = slices.Insert(slices.Delete(list, at, at+1), 0, c.last)
	}
	return list
}

// at makes a call to one curator.
func (c *Client) at(ctx context.Context, call, address string, do func(context.Context, clusterv1.EnrolmentServiceClient) (bool, error)) (answered bool, err error) {
	conn, check, err := c.dial(address)
	if err != nil {
		return false, err
	}
	defer func() {
		if err := conn.Close(); err != nil {
			c.config.Log.Debug("closing the connection to the curator", "curator", address, "error", err)
		}
	}()
	answered, err = do(ctx, clusterv1.NewEnrolmentServiceClient(conn))
	if err == nil {
		return answered, nil
	}
	if failed := check.failed(); failed != nil {
		return false, failed
	}
	return answered, c.typedError(call, address, err)
}
