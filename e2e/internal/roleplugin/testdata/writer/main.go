// The writer plugin: a role that writes what it is told to its part of the store, and says so only when the store has it.
package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name:    "writer",
		Version: "0.1.0",
		Roles:   []role.Role{{Name: "writer", Summary: "Writes what it is told", Grants: []role.Grant{role.GrantListen(role.AnyPort)}, ConsensusUser: "writer", Run: run}},
	})
}

func run(ctx context.Context, host *role.Host) error {
	kv, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer kv.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /put", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if _, err := kv.Put(ctx, r.FormValue("key"), r.FormValue("value")); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /all", func(w http.ResponseWriter, r *http.Request) {
		all := make(map[string]string)
		read, err := kv.Get(r.Context(), "", clientv3.WithPrefix())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for _, pair := range read.Kvs {
			all[string(pair.Key)] = string(pair.Value)
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	host.SetEndpoint("http", "http://"+listener.Addr().String())
	host.Ready()
	<-ctx.Done()
	err = server.Close()
	serving.Wait()
	return err
}
