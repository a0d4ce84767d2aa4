// barestore is an etcd as etcd's own package embed makes it: one member, alone or of several, without users, with native gRPC over plaintext TCP, and with
// what else the role consensus sets (its timing and its compaction). It prints the address for clients when its first write is on disk, or, if it joins
// others, when it has their data.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// readyTimeout is many elections long.
const readyTimeout = 30 * time.Second

func main() {
	var m member
	flag.StringVar(&m.directory, "directory", "", "where its data is")
	flag.StringVar(&m.sockets, "sockets", "", "where it makes its sockets")
	flag.StringVar(&m.name, "name", "bare", "what it is called among its peers")
	flag.StringVar(&m.host, "host", "", "the address on which it listens for its peers and for clients, at etcd's own ports; empty: any port for clients of 127.0.0.1, and no peers")
	flag.StringVar(&m.cluster, "cluster", "", "name=URL of every member; empty: it is the only one")
	flag.BoolVar(&m.join, "join", false, "whether it was added to a cluster that there is")
	flag.BoolVar(&m.strict, "strict", false, "whether etcd checks what a change of members does to the quorum")
	flag.IntVar(&m.heartbeat, "heartbeat", 100, "raft's heartbeat, in milliseconds; an election takes ten of them")
	flag.Parse()
	if err := m.run(); err != nil {
		fmt.Fprintln(os.Stderr, "barestore:", err)
		os.Exit(1)
	}
}

// member is what is to run.
type member struct {
	directory, sockets, name, host, cluster string
	join, strict                            bool
	heartbeat                               int
}

func (m member) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	etcd, err := embed.StartEtcd(m.settings())
	if err != nil {
		return err
	}
	defer etcd.Close()
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-ready.Done():
		return fmt.Errorf("not ready: %w", ready.Err())
	}
	// One that does not vote yet takes no writes.
	if !m.join {
		client := v3client.New(etcd.Server)
		defer func() { _ = client.Close() }()
		if _, err := client.Put(ready, "first", "write"); err != nil {
			return err
		}
	}
	address := ""
	for _, listener := range etcd.Clients {
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
			address = tcp.String()
		}
	}
	if address == "" {
		return errors.New("no listener for clients")
	}
	fmt.Println(address)
	select {
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

func (m member) settings() *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = m.name, m.directory
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = uint(m.heartbeat), uint(10*m.heartbeat)
	c.StrictReconfigCheck = m.strict
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	// etcd takes the path of a socket from the URL's host.
	c.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Host: m.name}}
	// On a listener of its own: otherwise gRPC is served through net/http, at half the speed.
	c.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Host: filepath.Join(m.sockets, "http.sock")}}
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: filepath.Join(m.sockets, "peer.sock")}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: m.name}}
	if m.host != "" {
		c.ListenClientUrls = []url.URL{{Scheme: "http", Host: net.JoinHostPort(m.host, "2379")}}
		c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: net.JoinHostPort(m.host, "2380")}}
		c.AdvertisePeerUrls = c.ListenPeerUrls
	}
	c.EnableGRPCGateway = false
	if c.InitialCluster = m.cluster; m.cluster == "" {
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	}
	if m.join {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
	return c
}
