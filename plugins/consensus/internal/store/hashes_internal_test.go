package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestHashHoldsNobodyUp has a key written, read and compacted away while the hash of what was there before is computed, and the same hash come out.
func TestHashHoldsNobodyUp(t *testing.T) {
	directory, err := os.MkdirTemp("", "rv") // short, for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	config := Config{Log: hclog.NewNullLogger(), Directory: filepath.Join(directory, "data"), RuntimeDirectory: filepath.Join(directory, "run")}
	if err := errors.Join(os.Mkdir(config.Directory, 0o700), os.Mkdir(config.RuntimeDirectory, 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := Open(ctx, config, Plan{ClusterID: "c", NodeID: "reeve-1", ClusterUser: "curator", New: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	root := Root(ctx)
	for n := range 25 {
		var puts []clientv3.Op
		for m := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/k/%d/%d", n, m), "v"))
		}
		if _, err := s.client.Txn(root).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	revision := s.etcd.Server.KV().Rev()
	want, _, err := s.hash(ctx, revision)
	if err != nil {
		t.Fatal(err)
	}
	if hashes, _, err := s.Hashes(ctx); err != nil || len(hashes) > 0 {
		t.Errorf("a store of one member compares %v, %v", hashes, err)
	}

	if _, err := s.client.Get(root, "/k/0/0"); err != nil { // etcd keeps what it read, also of what is being committed
		t.Fatal(err)
	}
	for range 3 {
		if again, _, err := s.hash(ctx, revision); err != nil || again != want {
			t.Fatalf("the hash of the same is %v, %v, want %v", again, err, want)
		}
	}
	pages := 0
	s.betweenPages = func() {
		if pages++; pages > 1 {
			return
		}
		put, err := s.client.Put(root, "/k/0/0", "w")
		if err != nil {
			t.Fatal("a write waits for the hash: ", err)
		}
		if found, err := s.client.Get(root, "/k/0/0"); err != nil || string(found.Kvs[0].Value) != "w" {
			t.Errorf("a read while a hash is under way: %v", err)
		}
		if _, err := s.client.Compact(root, put.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Error(err)
		}
	}
	if got, _, err := s.hash(ctx, revision); err != nil || got != want || pages < 2 {
		t.Errorf("hash %v after %d pages, %v, want %v", got, pages, err, want)
	}
	s.betweenPages = nil
	if other, _, err := s.hash(ctx, s.etcd.Server.KV().Rev()); err != nil || other.Hash == want.Hash {
		t.Errorf("the hash of other data: %v, %v", other, err)
	}

	var rewriting sync.WaitGroup
	s.betweenPages = func() {
		rewriting.Go(func() {
			if _, err := s.rewrite(); err != nil {
				t.Error(err)
			}
		})
		for !s.pulse.rewriting.Load() {
			runtime.Gosched()
		}
		s.betweenPages = nil
	}
	if _, _, err := s.hash(ctx, s.etcd.Server.KV().Rev()); !errors.Is(err, errGaveWay) {
		t.Errorf("a hash while the database is to be rewritten: %v", err)
	}
	rewriting.Wait()
}
