// The courier plugin: the role courier keeps a connection to every other instance of itself, and gets its identity from the SPIFFE Workload API by a library that knows
// nothing of Reeve. What it is given it writes down, as somebody would who has taken it over. The role archivist uses the store, and does not say that it requires it.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	name     = "courier"
	endpoint = "post"
	// again is how soon a connection is made anew that could not be made, or has ended.
	again = 100 * time.Millisecond
)

func main() {
	role.Serve(role.Plugin{
		Name: name, Version: "0.1.0",
		Roles: []role.Role{{
			Name: name, Summary: "keeps a connection to every other courier",
			Grants: []role.Grant{role.GrantListen(role.AnyPort), role.GrantConnect(role.AnyPort)},
			Run:    run,
		}, {
			Name: "archivist", Summary: "keeps something in the store", ConsensusUser: "archivist", Run: archive,
		}},
	})
}

// archive keeps a key in the store.
func archive(ctx context.Context, host *role.Host) error {
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Put(ctx, host.NodeID(), host.InstanceID()); err != nil {
		return err
	}
	host.Ready()
	<-ctx.Done()
	return nil
}

func run(ctx context.Context, host *role.Host) error {
	// Without an address: the library finds the API by its environment.
	source, err := workloadapi.NewX509Source(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	listener, err := host.Listen(ctx, endpoint)
	if err != nil {
		return err
	}
	c := &courier{host: host, open: map[string]map[string]int{"accepted": {}, "dialled": {}}}
	var workers sync.WaitGroup
	defer workers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers.Go(func() { c.accept(ctx, listener, &workers) })
	workers.Go(func() { c.dialAll(ctx, &workers) })
	if err := c.tell(source, 1); err != nil {
		return err
	}
	host.Ready()
	for told := 2; ; told++ {
		if err := source.WaitUntilUpdated(ctx); err != nil {
			return nil // it is to stop
		}
		if err := c.tell(source, told); err != nil {
			return err
		}
	}
}

// courier keeps the connections: how many there are with which node, by who has made them.
type courier struct {
	host *role.Host

	mu   sync.Mutex
	open map[string]map[string]int
}

// tell shows who the role is, and keeps by what it proves that.
func (c *courier) tell(source *workloadapi.X509Source, times int) error {
	svid, err := source.GetX509SVID()
	if err != nil {
		return err
	}
	chain, key, err := svid.Marshal()
	if err != nil {
		return err
	}
	file := filepath.Join(c.host.DataDirectory(), "svid.pem")
	if err := errors.Join(os.WriteFile(file+".new", append(chain, key...), 0o600), os.Rename(file+".new", file)); err != nil {
		return err
	}
	bundle, err := source.GetX509BundleForTrustDomain(svid.ID.TrustDomain())
	if err != nil {
		return err
	}
	c.host.SetValue("id", svid.ID.String())
	c.host.SetValue("serial", svid.Certificates[0].SerialNumber.Text(16))
	c.host.SetValue("authority", hex.EncodeToString(svid.Certificates[0].AuthorityKeyId))
	c.host.SetValue("bundle", strconv.Itoa(len(bundle.X509Authorities())))
	c.host.SetValue("times", strconv.Itoa(times))
	return nil
}

// accept keeps every connection that comes in for as long as it lasts.
func (c *courier) accept(ctx context.Context, listener net.Listener, workers *sync.WaitGroup) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // the role is to stop
		}
		workers.Go(func() { c.keep(ctx, conn, "accepted") })
	}
}

// dialAll keeps a connection to every other node of the directory that has a courier.
func (c *courier) dialAll(ctx context.Context, workers *sync.WaitGroup) {
	directories := c.host.Directory().Watch()
	dialling := make(map[string]bool)
	for {
		directory, err := directories.Next(ctx)
		if err != nil {
			return
		}
		for _, node := range directory.GetNodes() {
			id := node.GetNodeId()
			runs := slices.ContainsFunc(node.GetRoles(), func(r *hostv1.DirectoryRole) bool { return r.GetRole() == name })
			if id == c.host.NodeID() || !runs || dialling[id] {
				continue
			}
			dialling[id] = true
			workers.Go(func() { c.dial(ctx, id) })
		}
	}
}

func (c *courier) dial(ctx context.Context, node string) {
	for ctx.Err() == nil {
		if conn, err := c.host.Dial(ctx, name, node, endpoint); err == nil {
			c.keep(ctx, conn, "dialled")
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// keep waits until a connection ends.
func (c *courier) keep(ctx context.Context, conn net.Conn, how string) {
	peer, _ := role.PeerOf(conn)
	c.count(how, peer.NodeID, 1)
	defer c.count(how, peer.NodeID, -1)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

func (c *courier) count(how, node string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[how][node] += by
	if c.open[how][node] == 0 {
		delete(c.open[how], node)
	}
	var nodes []string
	for node, n := range c.open[how] {
		nodes = append(nodes, fmt.Sprintf("%s=%d", node, n))
	}
	slices.Sort(nodes)
	c.host.SetValue(how, strings.Join(nodes, " "))
}
