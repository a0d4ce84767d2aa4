// Command probe is a plugin whose roles try how far they get.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func main() {
	listen := []role.Grant{role.GrantListen(role.AnyPort)}
	role.Serve(role.Plugin{
		Name:    "probe",
		Version: "0.1.0",
		Roles: []role.Role{
			{Name: "probe", Summary: "Tries etcd's calls", Grants: listen, ConsensusUser: "probe", Run: probe},
			{Name: "victim", Summary: "Has a lease and a key", Grants: listen, ConsensusUser: "victim", Run: victim},
			{Name: "stranger", Summary: "Uses the store without a ConsensusUser", Grants: listen, Run: stranger},
			{Name: "meddler", Summary: "Replaces files that it has no grant for", Grants: listen, Run: meddler},
		},
	})
}

// probe serves what it finds out over HTTP.
func probe(ctx context.Context, host *role.Host) error {
	socket, err := open(ctx, host)
	if err != nil {
		return err
	}
	// One that knows nothing of namespaces, and one as the SDK makes it.
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}})
	if err != nil {
		return err
	}
	defer raw.Close()
	kv, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer kv.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /socket", func(w http.ResponseWriter, _ *http.Request) { answer(w, socket, nil) })
	mux.HandleFunc("GET /identity", func(w http.ResponseWriter, _ *http.Request) { answer(w, self(), nil) })
	mux.HandleFunc("GET /table", func(w http.ResponseWriter, r *http.Request) {
		lease, err := strconv.ParseInt(r.FormValue("lease"), 10, 64)
		if err != nil {
			answer(w, nil, err)
			return
		}
		table, err := tryAll(r.Context(), raw, lease)
		answer(w, table, err)
	})
	mux.HandleFunc("POST /write", func(w http.ResponseWriter, r *http.Request) {
		value, err := write(r.Context(), raw, kv, r.FormValue("value"))
		answer(w, value, err)
	})
	mux.HandleFunc("POST /expire", func(w http.ResponseWriter, r *http.Request) {
		took, err := expire(r.Context(), kv)
		answer(w, took.String(), err)
	})
	mux.HandleFunc("GET /dial", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		another, err := consensus.Dial(ctx, host)
		if err == nil {
			err = another.Close()
		}
		answer(w, classify(err), nil)
	})
	// One watch for the whole of the role's life.
	var seen atomic.Value
	seen.Store("")
	mux.HandleFunc("GET /seen", func(w http.ResponseWriter, _ *http.Request) { answer(w, seen.Load(), nil) })
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		for response := range kv.Watch(ctx, "/value") {
			for _, event := range response.Events {
				seen.Store(string(event.Kv.Value))
			}
		}
	})
	return serve(ctx, host, mux)
}

// expire says how long it takes until a key on a lease of 2 s is gone by itself.
func expire(ctx context.Context, kv *consensus.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	began := time.Now()
	put, err := light(ctx, kv)
	// The lease ended before there was a key on it: somebody has had to wait for a processor.
	for errors.Is(err, rpctypes.ErrLeaseNotFound) {
		began = time.Now()
		put, err = light(ctx, kv)
	}
	if err != nil {
		return 0, err
	}
	for response := range kv.Watch(ctx, "candle", clientv3.WithRev(put.Header.Revision+1)) {
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				return time.Since(began), nil
			}
		}
	}
	return 0, fmt.Errorf("the key is still there after %s", time.Since(began))
}

// light makes the key on a lease of 2 s.
func light(ctx context.Context, kv *consensus.Client) (*clientv3.PutResponse, error) {
	lease, err := kv.Grant(ctx, 2)
	if err != nil {
		return nil, err
	}
	return kv.Put(ctx, "candle", "lit", clientv3.WithLease(lease.ID))
}

// open waits until the store is open to the instance and returns its socket.
func open(ctx context.Context, host *role.Host) (string, error) {
	stream, err := host.Client().OpenConsensus(ctx, &hostv1.OpenConsensusRequest{})
	for err == nil {
		var response *hostv1.OpenConsensusResponse
		if response, err = stream.Recv(); err == nil && response.GetOpen() != nil {
			return response.GetOpen().GetSocket(), nil
		}
	}
	return "", err
}

// write writes through the SDK's client and reads through the raw one, below the prefix.
func write(ctx context.Context, raw *clientv3.Client, kv *consensus.Client, value string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := kv.Put(ctx, "/value", value); err != nil {
		return "", fmt.Errorf("put: %w", err)
	}
	read, err := raw.Get(ctx, "/reeve/users/probe//value")
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	if len(read.Kvs) != 1 {
		return "", fmt.Errorf("%d keys, want 1", len(read.Kvs))
	}
	return string(read.Kvs[0].Value), nil
}

// self is what the process is, as it sees it itself.
func self() map[string]any {
	directory, _ := os.Getwd()
	groups, _ := os.Getgroups()
	return map[string]any{
		"uid": os.Getuid(), "gid": os.Getgid(), "groups": groups, "environment": os.Environ(), "directory": directory,
	}
}

func serve(ctx context.Context, host *role.Host, handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	host.SetEndpoint("http", "http://"+listener.Addr().String())
	host.Ready()
	<-ctx.Done()
	err = server.Close()
	serving.Wait()
	return err
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(value)
}

// victim has a key on a lease, and shows which.
func victim(ctx context.Context, host *role.Host) error {
	kv, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer kv.Close()
	lease, err := kv.Grant(ctx, 3600)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, "key", "mine", clientv3.WithLease(lease.ID)); err != nil {
		return err
	}
	host.SetValue("lease", strconv.FormatInt(int64(lease.ID), 10))
	host.Ready()
	<-ctx.Done()
	return nil
}

// stranger shows which typed error Dial has for it.
func stranger(ctx context.Context, host *role.Host) error {
	kv, err := consensus.Dial(ctx, host)
	if err == nil {
		_ = kv.Close()
	}
	host.SetValue("dial", classify(err))
	host.Ready()
	<-ctx.Done()
	return nil
}

func classify(err error) string {
	if err == nil {
		return "open"
	}
	for name, kind := range map[string]error{
		"ErrNoLocalConsensus": consensus.ErrNoLocalConsensus,
		"ErrUnknownUser":      consensus.ErrUnknownUser,
		"ErrNotMember":        consensus.ErrNotMember,
		"ErrNotGranted":       consensus.ErrNotGranted,
	} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return fmt.Sprintf("%T: %v", err, err)
}

// meddler tries to use a power of the host that it has not even asked for, and the files of others.
func meddler(ctx context.Context, host *role.Host) error {
	_, _, err := host.ReadFile(ctx, "/etc/hosts")
	host.SetValue("read", fmt.Sprint(err))
	_, _, err = host.ReplaceFile(ctx, "/etc/hosts", "", []byte("mine\n"))
	host.SetValue("replace", fmt.Sprint(err))
	listed, err := list(host)
	host.SetValue("neighbours", fmt.Sprint(listed, " ", err))
	host.Ready()
	<-ctx.Done()
	return nil
}

// list looks for the data of other roles beside the own directory.
func list(host *role.Host) ([]string, error) {
	parent, err := os.Open(host.DataDirectory() + "/..")
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	names, err := parent.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
