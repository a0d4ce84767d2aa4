package membership

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// A machine comes into a cluster: each step is on the disk before the next begins, and nothing is forgotten before the cluster has it.
func TestEnrol(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		n := newNewcomer(t, path)
		n.office.fail(errors.New("no curator answers at 192.0.2.1:7400"))
		n.start(t, t.Context())
		defer func() { n.stop() }()
		time.Sleep(time.Minute)
		n.expect(t, Unknown, "no curator answers")
		if c := n.loaded(t); c.Phase != seal.Registering || c.Ticket == nil {
			t.Errorf("%+v", c)
		}
		n.office.fail(nil)
		time.Sleep(time.Minute)
		n.expect(t, Foreign, "`reeve node approve n1`")
		n.expect(t, Foreign, "SHA256:E545Q")
		c := n.loaded(t)
		if c.Phase != seal.Registered || c.Ticket != nil || c.CUK == nil || c.Registration.Curators[0] != "192.0.2.2:7400" {
			t.Errorf("%+v", c)
		}
		// A restart asks for no ticket, and a curator that is gone is only told of.
		n.stop()
		n.office.fail(errors.New("no curator answers"))
		n.start(t, t.Context())
		time.Sleep(time.Second)
		n.expect(t, Foreign, "no curator answers")
		n.expect(t, Foreign, "reeve node approve")
		n.office.fail(nil)
		time.Sleep(time.Minute)
		if n.office.registers != 1 {
			t.Errorf("registered %d times", n.office.registers)
		}
		n.office.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
		time.Sleep(time.Minute)
		n.expect(t, Trusted, "first contact")
		c = n.loaded(t)
		if c.Phase != seal.Member || c.CUK != nil || len(c.Owner) != 32 || bytes.Equal(c.Registration.CAPins[0], []byte{9}) || c.Registration.Curators[0] != "192.0.2.3:7400" || c.StoreFormed {
			t.Errorf("%+v", c)
		}
		if fmt.Sprint(n.kept) != "[api-user]" || len(n.office.commits) != 1 || !bytes.Equal(n.office.commits[0], bytes.Repeat([]byte{5}, 32)) {
			t.Errorf("kept %v, committed %x", n.kept, n.office.commits)
		}
		n.contact.Set(Contact{Reason: "not yet"})
		n.expect(t, Trusted, "not yet")
		n.contact.Set(Contact{OK: true})
		n.expect(t, Home, "member of the cluster")
		n.stop()
		n.start(t, t.Context())
		n.expect(t, Split, "no contact to the cluster yet")
		n.contact.Set(Contact{OK: true})
		n.expect(t, Home, "member of the cluster")
	})
}

// The core is killed before and after each change of the sealed configuration. The next one goes on, and the cluster sees one node with one half of a key.
func TestEnrolIsKilled(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		for after := range 8 {
			t.Run(fmt.Sprintf("%d on disk %t", after, onDisk), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "configuration.json")
				synctest.Test(t, func(t *testing.T) {
					n := newNewcomer(t, path)
					n.stopAfter, n.onDisk = after, onDisk
					n.start(t, t.Context())
					defer func() { n.stop() }()
					go func() {
						if _, err := n.office.state.Wait(t.Context(), func(s clusterv1.NodeState) bool { return s == clusterv1.NodeState_NODE_STATE_NEW }); err == nil {
							n.office.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
						}
					}()
					time.Sleep(time.Minute)
					synctest.Wait()
					if n.killed {
						n.stop()
						n.stopAfter = -1
						n.start(t, t.Context())
						time.Sleep(time.Minute)
						synctest.Wait()
					}
					n.contact.Set(Contact{OK: true})
					n.expect(t, Home, "member of the cluster")
					if c := n.loaded(t); c.Phase != seal.Member || c.CUK != nil || c.Ticket != nil || len(n.office.commits) == 0 || len(n.kept) == 0 {
						t.Errorf("%+v after %d commits", c, len(n.office.commits))
					}
				})
			})
		}
	}
}

// What the cluster refuses is said, and asked again now and then.
func TestEnrolIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		n := newNewcomer(t, path)
		n.office.fail(&enrol.RefusedError{Message: "the ticket has expired"})
		n.start(t, t.Context())
		defer n.stop()
		time.Sleep(time.Hour)
		n.expect(t, Unknown, "the cluster refuses: the ticket has expired")
		n.office.fail(nil)
		time.Sleep(2 * time.Minute)
		n.expect(t, Foreign, "reeve node approve")
	})
}

// A node that the cluster removes is never anything else again, whatever it was.
func TestRemoved(t *testing.T) {
	gone := &enrol.RemovedError{NodeID: "n1", Reason: "removed by owner at noon"}
	for _, state := range []clusterv1.NodeState{clusterv1.NodeState_NODE_STATE_UNSPECIFIED, clusterv1.NodeState_NODE_STATE_NEW} {
		t.Run(state.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "configuration.json")
			synctest.Test(t, func(t *testing.T) {
				n := newNewcomer(t, path)
				if state == clusterv1.NodeState_NODE_STATE_UNSPECIFIED {
					n.office.fail(gone)
				}
				n.start(t, t.Context())
				defer n.stop()
				time.Sleep(time.Second)
				if state == clusterv1.NodeState_NODE_STATE_NEW {
					n.expect(t, Foreign, "")
					n.office.fail(gone)
					n.office.state.Set(state)
				}
				n.expect(t, Disowning, "removed by owner at noon")
				n.contact.Set(Contact{OK: true})
				n.expect(t, Disowning, "removed by owner at noon")
				if n.removed != gone.Reason {
					t.Errorf("kept %q", n.removed)
				}
			})
		})
	}
	t.Run("member", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "configuration.json")
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, path, seal.Member)
			defer b.stop()
			kept, fails := "", 2
			b.room.config.Disown = func(reason string) error {
				if fails--; fails >= 0 {
					return errors.New("disk full")
				}
				kept = reason
				return nil
			}
			b.contact.Set(Contact{OK: true})
			b.expect(t, Home, "member")
			b.room.config.Removed.Set(gone)
			b.expect(t, Home, "disk full")
			time.Sleep(time.Minute)
			b.expect(t, Disowning, gone.Reason)
			if kept != gone.Reason {
				t.Errorf("kept %q", kept)
			}
		})
	})
}

// A member that is to have a place in the store joins it, is Home meanwhile, and opens what it has from then on; what was taken from it, it joins anew.
func TestJoinsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := joining(t)
		defer func() { b.stop() }()
		b.contact.Set(Contact{OK: true})
		var mu sync.Mutex
		waits := errors.New("")
		set := func(err error) { mu.Lock(); defer mu.Unlock(); waits = err }
		set(status.Error(codes.Unavailable, "no member answers yet"))
		p.formed = func(request *consensusv1.FormRequest) error {
			if request.GetClusterUser() != "api-user" {
				t.Errorf("form %v", request)
			}
			mu.Lock()
			defer mu.Unlock()
			return waits
		}
		if how := b.provide(p, 1); how != "join" || b.stored(t) {
			t.Errorf("formed by %s, stored %t", how, b.stored(t))
		}
		b.expect(t, Home, "which waits: no member answers yet")
		set(nil)
		time.Sleep(time.Minute)
		b.expect(t, Home, "member of the cluster")
		if !b.stored(t) {
			t.Error("that the node has a member of the store is not kept")
		}
		if how := b.provide(p, 2); how != "existing" {
			t.Errorf("a store that was joined is formed by %s", how)
		}
		// Its data is lost: that does not pass, until the cluster takes the role from the node.
		problem, err := status.New(codes.FailedPrecondition, "no").WithDetails(&consensusv1.FormProblem{Message: "the store is missing"})
		if err != nil {
			t.Fatal(err)
		}
		set(problem.Err())
		b.provide(p, 3)
		if got, _ := b.room.Problem().Get(); got == nil || !strings.Contains(got.Message, "the store is missing") {
			t.Errorf("problem %+v", got)
		}
		b.capabilities.Set(nil)
		synctest.Wait()
		for range 2 {
			b.room.config.StoreLeft.Set(true)
			synctest.Wait()
		}
		if got, _ := b.room.Problem().Get(); got != nil || b.stored(t) {
			t.Errorf("problem %+v, formed %t", got, b.stored(t))
		}
		set(nil)
		b.room.config.StoreLeft.Set(false)
		if how := b.provide(p, 4); how != "join" || !b.stored(t) {
			t.Errorf("anew by %s", how)
		}
	})
}
