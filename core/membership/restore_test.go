package membership

import (
	"context"
	"path/filepath"
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

// TestRestoreRefused holds that a snapshot that the role does not take is a problem that does not pass by itself.
func TestRestoreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBenchWith(t, path, seal.Forming, func(config *Config) {
			config.Restore = func(context.Context, consensusv1.ConsensusServiceClient) error {
				return status.Error(codes.FailedPrecondition, "no room")
			}
		})
		defer b.stop()
		b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: &provider{}}})
		synctest.Wait()
		if problem, ok := b.room.Problem().Get(); !ok || problem.Role != "store" || problem.Message != "cannot restore the consensus store: no room; then run `reeved restore` again, with the same arguments" {
			t.Errorf("problem %+v", problem)
		}
	})
}
