package archive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// maxStreams is how many calls one connection may have under way, and maxReading how many snapshots may be read at a time, each of which is an open file. An archive reads one.
	maxStreams = 8
	maxReading = 2
	// maxConnections is how many connections there are. Beyond that the oldest one is closed. An archive has one, and another one when that ends with its SVID.
	maxConnections = 4
	// maxRequest bounds a request, which has a name.
	maxRequest = 4 << 10
	// listenAgain is the pause after the endpoint could not be opened.
	listenAgain = 10 * time.Second
)

// Listener opens an endpoint for other roles: a *role.Host.
type Listener interface {
	Listen(ctx context.Context, name string, options ...role.ListenOption) (*role.Listener, error)
}

// Config is what serving needs.
type Config struct {
	Listener  Listener
	Directory *scheduled.Directory
	Snapshots *event.Value[*cache.Snapshot]
	NodeID    string
	Log       hclog.Logger
}

// assigned reports whether the node has the role archive.
func (c Config) assigned(now *cache.Snapshot) bool {
	return slices.ContainsFunc(now.Nodes[c.NodeID].GetRoles(), func(one *clusterv1.RoleAssignment) bool { return one.GetRole() == archivev1.Role })
}

// Run serves while the node has the role archive, until ctx is done.
func Run(ctx context.Context, config Config) {
	for ctx.Err() == nil {
		if _, err := config.Snapshots.Wait(ctx, config.assigned); err != nil {
			return
		}
		if err := config.whileAssigned(ctx); err != nil && ctx.Err() == nil {
			config.Log.Warn("cannot serve the snapshots of this node to the role archive; trying again", "error", err, "again in", listenAgain)
			timer := time.NewTimer(listenAgain)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// whileAssigned serves until the node does not have the role any more.
func (c Config) whileAssigned(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		defer cancel()
		_, _ = c.Snapshots.Wait(ctx, func(now *cache.Snapshot) bool { return !c.assigned(now) })
	})
	return c.serve(ctx)
}

// listen listens on a loopback address: nobody else than the own node's role may ask.
func (c Config) listen(ctx context.Context, loopback string) (*role.Listener, error) {
	return c.Listener.Listen(ctx, archivev1.Endpoint, role.AllowRoles(archivev1.Role), role.ListenOn(loopback))
}

// serve serves until ctx is done, and then returns nil.
func (c Config) serve(ctx context.Context) error {
	listener, err := c.listen(ctx, "127.0.0.1:0")
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		listener, err = c.listen(ctx, "[::1]:0")
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	server := grpc.NewServer(
		grpc.Creds(role.Credentials()), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest), grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := c.check(ctx); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := c.check(stream.Context()); err != nil {
				return err
			}
			return handler(service, stream)
		}),
	)
	archivev1.RegisterArchiveServiceServer(server, &service{directory: c.Directory, log: c.Log, reading: make(chan struct{}, maxReading)})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		server.Stop()
	})
	err = server.Serve(&newest{Listener: listener})
	if stop() {
		server.Stop()
		return fmt.Errorf("the endpoint %s is served no more: %w", archivev1.Endpoint, err)
	}
	<-stopped
	return nil
}

// newest keeps the newest connections only.
type newest struct {
	net.Listener
	held []net.Conn
}

// Accept implements net.Listener.
func (n *newest) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if n.held = append(n.held, conn); len(n.held) > maxConnections {
		_ = n.held[0].Close()
		n.held = slices.Delete(n.held, 0, 1)
	}
	return conn, nil
}
