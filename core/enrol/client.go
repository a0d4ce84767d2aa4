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
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// connectTimeout is how long one curator may take to be connected with before the next is tried.
	connectTimeout = 3 * time.Second
	// callTimeout is how long one curator may take to answer: some milliseconds, and seconds while the store elects a leader.
	callTimeout = 10 * time.Second
)

// Config is what the client needs.
type Config struct {
	// Log takes the client's log; nil: none is written.
	Log hclog.Logger
	// ClusterID is the cluster that the node is to be a member of, or is.
	ClusterID string
	// NodeID is the node whose volume is locked, for Join: a join key does not say whose it is, and a tombstone must. The other calls do not look at it.
	NodeID string
	// Pins are the SHA-256 hashes of the public keys (SubjectPublicKeyInfo, DER) of the certificates of the cluster's CA.
	Pins [][]byte
	// Curators returns the host:port of every curator that is known by now; asked at every call.
	Curators func() []string
	// Dial connects to the host:port of a curator; nil: plain TCP, without a proxy whatever the environment says.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Now is the clock by which certificates are judged; nil: time.Now.
	Now func() time.Time
}

// Client calls the EnrolmentService. Its methods may be called at the same time.
type Client struct {
	config Config

	mu sync.Mutex
	// last is the curator that last answered: it is asked first. What one curator was told the others know, but may see a moment later.
	last string
}

// New returns a client. It connects when it is called.
func New(config Config) *Client {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Dial == nil {
		config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	return &Client{config: config}
}

// Register has the cluster make a record of the node.
func (c *Client) Register(ctx context.Context, nodeKey ed25519.PrivateKey, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	return unary(ctx, c, call{name: "Register", key: nodeKey, nodeID: nodeID(nodeKey)}, request, clusterv1.EnrolmentServiceClient.Register)
}

// Await calls each with the state of the node's record: the present one, then every change. It returns what each returns if that is an error, and otherwise why the
// stream ended: what is not final is repeated by calling it again.
func (c *Client) Await(ctx context.Context, nodeKey ed25519.PrivateKey, each func(*clusterv1.AwaitResponse) error) error {
	return c.try(ctx, call{name: "Await", key: nodeKey, nodeID: nodeID(nodeKey)}, func(ctx context.Context, api clusterv1.EnrolmentServiceClient) (bool, error) {
		return await(ctx, api, each)
	})
}

// Commit gives the cluster its half of the key of the node's volume, and returns what a member needs.
func (c *Client) Commit(ctx context.Context, nodeKey ed25519.PrivateKey, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	return unary(ctx, c, call{name: "Commit", key: nodeKey, nodeID: nodeID(nodeKey)}, request, clusterv1.EnrolmentServiceClient.Commit)
}

// Join returns the cluster's half of the key of the volume of the node whose join key it is.
func (c *Client) Join(ctx context.Context, joinKey ed25519.PrivateKey, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
	return unary(ctx, c, call{name: "Join", key: joinKey, nodeID: c.config.NodeID}, request, clusterv1.EnrolmentServiceClient.Join)
}

// call is what one call is, whichever curator it goes to.
type call struct {
	name string
	key  ed25519.PrivateKey
	// nodeID is the node that a tombstone must name.
	nodeID string
}

func nodeID(key ed25519.PrivateKey) string {
	if len(key) != ed25519.PrivateKeySize {
		return "" // SelfSigned says what is wrong with it
	}
	return names.NodeID(key.Public().(ed25519.PublicKey))
}

func unary[Q, A any](
	ctx context.Context, c *Client, what call, request *Q,
	do func(clusterv1.EnrolmentServiceClient, context.Context, *Q, ...grpc.CallOption) (*A, error),
) (*A, error) {
	var answer *A
	err := c.try(ctx, what, func(ctx context.Context, api clusterv1.EnrolmentServiceClient) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
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

// errSilent ends a stream that was opened and then delivered nothing.
var errSilent = fmt.Errorf("it took the call and sent nothing for %s", callTimeout)

// eachError is an error of who is told, and no curator's.
type eachError struct{ error }

func (e *eachError) Unwrap() error { return e.error }

func await(ctx context.Context, api clusterv1.EnrolmentServiceClient, each func(*clusterv1.AwaitResponse) error) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout, func() { cancel(errSilent) })
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
		if err := each(response); err != nil {
			return true, &eachError{err}
		}
	}
}

// try makes a call at the curators in turn until one answers it, whatever that answer is.
func (c *Client) try(ctx context.Context, what call, do func(context.Context, clusterv1.EnrolmentServiceClient) (answered bool, err error)) error {
	if len(c.config.Pins) == 0 {
		return fmt.Errorf("enrol: %s: no certificate of the CA of cluster %s is pinned, so that no curator can be believed", what.name, c.config.ClusterID)
	}
	curators := c.order(what)
	if len(curators) == 0 {
		return fmt.Errorf("enrol: %s: the address of no curator of cluster %s is known", what.name, c.config.ClusterID)
	}
	var problems []string
	var unpinned []shown
	for _, address := range curators {
		answered, err := c.at(ctx, what, address, do)
		if answered {
			c.mu.Lock()
			c.last = address
			c.mu.Unlock()
		}
		var mine *eachError
		var pin *pinFailure
		switch {
		case err == nil:
			return nil
		case errors.As(err, &mine):
			return mine.error
		case ctx.Err() != nil:
			return fmt.Errorf("enrol: %s: %w", what.name, context.Cause(ctx))
		case errors.As(err, &pin):
			unpinned = append(unpinned, shown{address, pin.pins})
		case final(err):
			return err
		}
		c.config.Log.Debug("a curator did not answer", "call", what.name, "curator", address, "error", err)
		problems = append(problems, fmt.Sprintf("%s: %v", address, err))
		if answered {
			break // the stream was open for its time; the others are asked by the next call
		}
	}
	if len(unpinned) == len(curators) {
		return &PinError{ClusterID: c.config.ClusterID, Pinned: slices.Clone(c.config.Pins), shown: unpinned}
	}
	return fmt.Errorf("enrol: %s: no curator of cluster %s answered: %s", what.name, c.config.ClusterID, strings.Join(problems, "; "))
}

// order returns the curators: the one that answered last, then the others spread over the nodes that call.
func (c *Client) order(what call) []string {
	var known []string
	if c.config.Curators != nil {
		known = c.config.Curators()
	}
	list := spread.Order(what.nodeID, known)
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(list, c.last); at > 0 {
		list = slices.Insert(slices.Delete(list, at, at+1), 0, c.last)
	}
	return list
}

// at makes a call at one curator.
func (c *Client) at(ctx context.Context, what call, address string, do func(context.Context, clusterv1.EnrolmentServiceClient) (bool, error)) (answered bool, err error) {
	conn, check, err := c.dial(address, what.key)
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
	return answered, meaning(what, address, err)
}
