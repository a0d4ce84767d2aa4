// crowd is many simulated nodes (package e2e/bench/crowd). It is told the cluster that they come to by a file and prints the URL at which it is
// asked for them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/reeveproject/reeve/e2e/bench/crowd"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cluster := flag.String("cluster", "", "a file with the cluster's settings")
	flag.Parse()
	document, err := os.ReadFile(*cluster)
	if err != nil {
		return err
	}
	var settings crowd.Settings
	if err := json.Unmarshal(document, &settings); err != nil {
		return fmt.Errorf("%s: %w", *cluster, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return crowd.Serve(ctx, listener, crowd.New(settings))
}
