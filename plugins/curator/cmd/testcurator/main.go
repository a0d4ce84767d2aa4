// Command testcurator serves clusters to the tests of other modules, which cannot import the curator: each connection to the socket that it is given has a cluster
// of its own, with the curator as it is and a part of one etcd for its store. A cluster ends with its connection, and all of them with the standard input.
//
// The tests are the core of the first node: they call Start with what a core bootstraps with. All other nodes, and operators, call the curator itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"sync"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "testcurator:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: testcurator SOCKET")
	}
	etcd, err := etcdtest.Start()
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", arguments[0])
	if err != nil {
		return errors.Join(err, etcd.Stop())
	}
	// Whoever started this waits for a line, and then connects.
	fmt.Println("ready")
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
		end()
	}()
	var serving sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		serving.Go(func() { serve(ctx, etcd, conn) })
	}
	serving.Wait()
	return etcd.Stop()
}

// serve serves one cluster until the connection or ctx ends.
func serve(ctx context.Context, etcd *etcdtest.Etcd, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	raw, err := etcd.Dial()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "testcurator:", err)
		_ = conn.Close()
		return
	}
	defer func() { _ = raw.Close() }()
	cluster := newCluster(raw, etcd.NewPrefix())
	defer cluster.stop()
	server := rpc.NewServer()
	if err := server.RegisterName("Cluster", cluster); err != nil {
		panic(err)
	}
	server.ServeConn(conn)
}
