// The plugin lighthouse is an example of a role that somebody outside of the project writes: it keeps a counter in the cluster's consensus store
// and serves it over HTTP. Its README says how to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

// configurationSchema is what the cluster checks a configuration against before the role sees it.
const configurationSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "listen": {
      "type": "string",
      "default": "127.0.0.1:0",
      "description": "host:port on which the counter is served; port 0 is a free one."
    }
  }
}
`

type configuration struct {
	Listen string `json:"listen"`
}

func parse(document []byte) (configuration, error) {
	c := configuration{Listen: "127.0.0.1:0"}
	if err := role.Decode(document, &c); err != nil {
		return c, err
	}
	var problems role.ConfigurationError
	if _, err := net.ResolveTCPAddr("tcp", c.Listen); err != nil {
		problems.Add("/listen", "%q: want host:port, such as 127.0.0.1:8080: %s", c.Listen, err)
	}
	return c, problems.Err()
}

func main() {
	l := &lighthouse{}
	role.Serve(role.Plugin{
		Name: "lighthouse", Version: "0.1.0",
		Roles: []role.Role{{
			Name:          "lighthouse",
			Summary:       "keeps a counter in the consensus store and serves it over HTTP",
			ConsensusUser: "lighthouse",
			// The port is configured, so it may be any.
			Grants:              []role.Grant{role.GrantListen(role.AnyPort)},
			GivesUp:             []string{role.GiveUpProcesses},
			Requires:            []string{"reeve.consensus.v1"},
			ConfigurationSchema: configurationSchema,
			CheckConfiguration: func(document []byte) error {
				_, err := parse(document)
				return err
			},
			Run:         l.run,
			CheckHealth: l.checkHealth,
			Metrics:     l.metrics,
		}},
	})
}

// lighthouse is the role. Its functions are called beside one another: what they share is safe for that.
type lighthouse struct {
	// light is nil until the role serves.
	light atomic.Pointer[light]
}

// light is what serves.
type light struct {
	counter *counter
	// socket is where the role itself reaches its HTTP server: it may listen on TCP, and has no grant to connect.
	socket string
	// unanswered is how many requests could not be answered.
	unanswered atomic.Uint64
}

func (l *lighthouse) run(ctx context.Context, host *role.Host) error {
	c, err := parse(host.Configuration())
	if err != nil {
		return err
	}
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("lighthouse: %w", err)
	}
	burning := &light{counter: &counter{store: store, key: "count"}, socket: filepath.Join(host.RuntimeDirectory(), "http.sock")}
	own, err := (&net.ListenConfig{}).Listen(ctx, "unix", burning.socket)
	if err != nil {
		return errors.Join(fmt.Errorf("lighthouse: %w", err), listener.Close())
	}
	l.light.Store(burning)
	host.SetEndpoint("http", "http://"+listener.Addr().String()+"/")
	host.Ready()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { burning.watchStore(ctx, host) })
	defer watching.Wait()
	defer cancel()
	return serve(ctx, handler(burning, host.Logger()), listener, own)
}

// serve serves HTTP on all listeners until ctx is done and the requests that are under way have been answered.
func serve(ctx context.Context, handler http.Handler, listeners ...net.Listener) error {
	server := &http.Server{
		Handler: handler,
		// A client that sends slowly must not hold a connection for good.
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	ended := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { ended <- server.Serve(listener) }()
	}
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("lighthouse: %w", err), server.Close())
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime+time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	for range listeners {
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	return err
}
