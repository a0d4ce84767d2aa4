// The plugin benchglutton has a role that uses the store, or the directory, as much as it gets, in the way that its endpoint "http" is asked to, until who asks hangs up.
package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name: "benchglutton", Version: "0.1.0",
		Roles: []role.Role{{
			Name: "benchglutton", Summary: "uses the store and the directory as much as it gets", ConsensusUser: "benchglutton", Requires: []string{"reeve.consensus.v1"},
			// It is told over HTTP what to do.
			Grants: []role.Grant{role.GrantListen(role.AnyPort)},
			Run:    run,
		}},
	})
}

// attack is something that is done again and again, by so many at once.
type attack struct {
	workers int
	once    func(ctx context.Context, host *role.Host, store *consensus.Client) error
}

const large = "large"

var attacks = map[string]attack{
	// 64 MiB for each call, of which two fit.
	"reads": {8, func(ctx context.Context, _ *role.Host, store *consensus.Client) error {
		ops := make([]clientv3.Op, 64)
		for n := range ops {
			ops[n] = clientv3.OpGet(large)
		}
		_, err := store.Txn(ctx).Then(ops...).Commit()
		return err
	}},
	"history": {4, func(ctx context.Context, _ *role.Host, store *consensus.Client) error {
		_, err := store.Put(ctx, large, value)
		return err
	}},
	// As much as a role may publish, other values a thousand times a second: faster, it would be busy with itself.
	"published": {1, func(ctx context.Context, host *role.Host, _ *consensus.Client) error {
		content := strings.Repeat(strconv.FormatInt(time.Now().UnixNano(), 36), limits.Value)[:limits.Value-64]
		for n := range limits.Published/limits.Value - 1 {
			host.SetValue(strconv.Itoa(n), content)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		return nil
	}},
	"leases": {200, func(ctx context.Context, _ *role.Host, store *consensus.Client) error {
		granted, err := store.Grant(ctx, 60)
		if err == nil {
			_, err = store.Revoke(ctx, granted.ID)
		}
		if err == nil {
			_, err = store.Leases(ctx)
		}
		return err
	}},
}

var value = string(bytes.Repeat([]byte{7}, 1<<20))

func run(ctx context.Context, host *role.Host) error {
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Put(ctx, large, value); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chosen, ok := attacks[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.Error(w, "no such attack", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // who asks goes on when it has begun
		chosen.perform(r.Context(), host, store)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	host.SetEndpoint("http", "http://"+listener.Addr().String()+"/")
	host.Ready()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// perform goes on until ctx is done, whatever is refused.
func (a attack) perform(ctx context.Context, host *role.Host, store *consensus.Client) {
	var workers sync.WaitGroup
	for range a.workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				_ = a.once(ctx, host, store)
			}
		})
	}
	workers.Wait()
}
