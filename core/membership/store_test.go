package membership

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// joining is a member without a member of the store, which runs until the test ends.
func joining(t *testing.T) (b *bench, p *provider) {
	t.Helper()
	b = newBench(t, filepath.Join(t.TempDir(), "configuration.json"), seal.Formed)
	b.stop()
	if err := b.update(t.Context(), func(c *seal.Configuration) { c.Phase, c.StoreFormed = seal.Member, false }); err != nil {
		t.Fatal(err)
	}
	b.room = New(Config{
		Log: hclog.NewNullLogger(), Update: b.update, Configuration: b.configuration, Identity: &b.identity, Capabilities: &b.capabilities, Contact: &b.contact,
		ClusterUser: func() string { return "api-user" },
		Curators:    new(event.Value[[]string]), StoreLeft: new(event.Value[bool]), Removed: new(event.Value[*enrol.RemovedError]),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.room.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	b.stop = func() { cancel(); <-done }
	return b, &provider{}
}

// provide has the n-th instance provide the store, and returns how it was formed by that.
func (b *bench) provide(p *provider, n int) (how string) {
	b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: fmt.Sprintf("n1/store/%d", n), Role: "store", Conn: p}})
	time.Sleep(time.Minute)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.forms[len(p.forms)-1].GetHow().(type) {
	case *consensusv1.FormRequest_Join:
		return "join"
	case *consensusv1.FormRequest_Existing:
		return "existing"
	}
	return "new"
}

// stored says whether it is on disk that the node has a member of the store.
func (b *bench) stored(t *testing.T) bool {
	t.Helper()
	c, err := b.sealed.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.StoreFormed
}

// A node that leaves the store while that it has joined is being kept has left it: on disk, and in memory, so that the next instance joins.
func TestJoinAndLeaveAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := joining(t)
		defer func() { b.stop() }()
		held := make(chan struct{})
		b.kept = func(c *seal.Configuration) error {
			if c.StoreFormed {
				<-held // on disk, and not in memory yet
			}
			return nil
		}
		if how := b.provide(p, 1); how != "join" || !b.stored(t) {
			t.Fatalf("formed by %s", how)
		}
		left := make(chan error, 1)
		go func() { left <- b.room.leaveStore(t.Context()) }()
		synctest.Wait()
		close(held)
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		b.capabilities.Set(nil)
		synctest.Wait()
		b.kept = nil
		onDisk := b.stored(t)
		if how := b.provide(p, 2); onDisk || how != "join" {
			t.Errorf("stored %t, and the next instance forms it by %s", onDisk, how)
		}
	})
}

// A join that is kept after the instance has ended does not undo that the node has left the store since.
func TestAJoinThatIsLateIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := joining(t)
		defer func() { b.stop() }()
		p.formed = func(*consensusv1.FormRequest) error {
			b.capabilities.Set(nil)
			return b.room.leaveStore(t.Context())
		}
		if how := b.provide(p, 1); how != "join" || b.stored(t) {
			t.Errorf("formed by %s, stored %t", how, b.stored(t))
		}
	})
}

// What the disk does not take is not so in memory either: a problem of the store stands until the node has left it.
func TestLeavingThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := joining(t)
		defer func() { b.stop() }()
		if how := b.provide(p, 1); how != "join" {
			t.Fatalf("formed by %s", how)
		}
		b.room.failed(&Problem{Role: "store", Message: "the store is missing", store: true})
		var full atomic.Bool
		full.Store(true)
		b.room.config.Update = func(ctx context.Context, change func(*seal.Configuration)) error {
			if full.Load() {
				return errors.New("disk full")
			}
			return b.update(ctx, change)
		}
		b.room.config.StoreLeft.Set(true)
		synctest.Wait()
		if problem, _ := b.room.Problem().Get(); problem == nil || !b.stored(t) {
			t.Errorf("problem %v, stored %t", problem, b.stored(t))
		}
		full.Store(false)
		time.Sleep(rewrite)
		synctest.Wait()
		if problem, _ := b.room.Problem().Get(); problem != nil || b.stored(t) {
			t.Errorf("problem %v, stored %t", problem, b.stored(t))
		}
	})
}
