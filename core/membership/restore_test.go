package membership

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestRestore holds that the store is made of the snapshot, which is sent before, and that the cluster is not made but restored.
func TestRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		sent, refusals := 0, 2
		b := newBenchWith(t, path, seal.Forming, func(config *Config) {
			config.Restore = func(context.Context, consensusv1.ConsensusServiceClient) error {
				if sent++; sent <= refusals {
					return status.Error(codes.Unavailable, "not yet")
				}
				return nil
			}
		})
		defer b.stop()
		b.expect(t, Bootstrapping, "forming the consensus store of the snapshot")
		p := &provider{}
		both := roles.Capabilities{
			roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}, roles.CapabilityCluster: {InstanceID: "n1/api/1", Role: "api", Conn: p},
		}
		p.bootstrap = func() error {
			if p.bootstraps == 1 {
				return status.Error(codes.FailedPrecondition, "another owner")
			}
			return nil
		}
		b.capabilities.Set(both)
		time.Sleep(time.Minute) // of the bubble's clock: the back-off between attempts
		synctest.Wait()
		if sent != refusals+1 || len(p.forms) != 1 || p.forms[0].GetRestored() == nil {
			t.Errorf("sent %d times, and formed: %v", sent, p.forms)
		}
		if problem, ok := b.room.Problem().Get(); !ok || problem.Role != "api" || problem.Message != "cannot restore the cluster: another owner; then run `reeved restore` again, with the same arguments" {
			t.Errorf("problem %+v", problem)
		}
		b.expect(t, Bootstrapping, "first contact")
		if got := b.phase(t); got != seal.Member || p.restores != 2 || p.bootstraps != p.restores {
			t.Errorf("phase %s after %d restores of %d calls", got, p.restores, p.bootstraps)
		}
	})
}

// TestRestoreRefused holds that a snapshot that the role does not take, or a file that cannot be read any more, is a problem that does not pass by itself.
func TestRestoreRefused(t *testing.T) {
	const again = "; then run `reeved restore` again, with the same arguments"
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"by the role":       {status.Error(codes.FailedPrecondition, "no room"), "cannot restore the consensus store: no room" + again},
		"with other advice": {status.Error(codes.FailedPrecondition, "run `reeved restore` again with another"), "cannot restore the consensus store: run `reeved restore` again with another"},
		"the file":          {errors.New("cannot restore from /snapshot: it is another file now"), "cannot restore from /snapshot: it is another file now" + again},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "configuration.json")
			synctest.Test(t, func(t *testing.T) {
				b := newBenchWith(t, path, seal.Forming, func(config *Config) {
					config.Restore = func(context.Context, consensusv1.ConsensusServiceClient) error { return test.err }
				})
				defer b.stop()
				b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: &provider{}}})
				synctest.Wait()
				if problem, ok := b.room.Problem().Get(); !ok || problem.Role != "store" || problem.Message != test.want {
					t.Errorf("problem %+v", problem)
				}
			})
		})
	}
}

// TestRestoreThatWaits holds that people see what a restore waits for.
func TestRestoreThatWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		full.Store(true)
		b := newBenchWith(t, path, seal.Forming, func(config *Config) {
			config.Restore = func(context.Context, consensusv1.ConsensusServiceClient) error {
				if full.Load() {
					return status.Error(codes.ResourceExhausted, "the disk is full")
				}
				return nil
			}
		})
		defer b.stop()
		b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: &provider{}}})
		b.expect(t, Bootstrapping, "forming the consensus store of the snapshot: the role that provides it does not take the snapshot yet: the disk is full")
		if problem, ok := b.room.Problem().Get(); ok {
			t.Errorf("problem %+v", problem)
		}
		full.Store(false)
		time.Sleep(time.Minute) // of the bubble's clock
		b.expect(t, Bootstrapping, "waiting for the cluster API")
	})
}
