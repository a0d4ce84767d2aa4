// barestore is an etcd as etcd's own package embed makes it: one member, without users, with native gRPC over plaintext TCP, and with what else the
// role consensus sets (its timing and its compaction). It prints the address for clients when its first write is on disk.
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
	directory := flag.String("directory", "", "where its data is")
	sockets := flag.String("sockets", "", "where it makes its sockets")
	flag.Parse()
	if err := run(*directory, *sockets); err != nil {
		fmt.Fprintln(os.Stderr, "barestore:", err)
		os.Exit(1)
	}
}

func run(directory, sockets string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	etcd, err := embed.StartEtcd(settings(directory, sockets))
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
	client := v3client.New(etcd.Server)
	defer func() { _ = client.Close() }()
	if _, err := client.Put(ready, "first", "write"); err != nil {
		return err
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

func settings(directory, sockets string) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = "bare", directory
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = 100, 1000
	// etcd takes the path of a socket from the URL's host.
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: filepath.Join(sockets, "peer.sock")}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: "bare"}}
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Host: "bare"}}
	// On a listener of its own: otherwise gRPC is served through net/http, at half the speed.
	c.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Host: filepath.Join(sockets, "http.sock")}}
	c.EnableGRPCGateway = false
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
	return c
}
