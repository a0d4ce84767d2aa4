package target_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/internal/fakecluster"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	nodeA = "reeve-aaaa0000000000000000000000000000"
	nodeB = "reeve-bbbb0000000000000000000000000000"
)

// rig is a cluster, and a person with a configuration directory.
type rig struct {
	*fakecluster.Cluster
	t     *testing.T
	store *contexts.Store
	// dir holds the configuration and the files of the person; socket is the local one of the first node.
	dir, socket, ownerKey string
	mu                    sync.Mutex
	now                   time.Time
}

func newKey(t *testing.T, file string) ed25519.PublicKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return public
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, fakecluster.ClusterID)
}

func newRigOf(t *testing.T, clusterID string) *rig {
	t.Helper()
	dir := directory(t)
	r := &rig{t: t, dir: dir, ownerKey: filepath.Join(dir, "owner.key"), socket: filepath.Join(dir, "run", "node.sock"),
		store: contexts.New(filepath.Join(dir, "config"))}
	cluster, err := fakecluster.NewOf(clusterID, newKey(t, r.ownerKey))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r.Cluster = cluster
	if err := errors.Join(cluster.AddNode(nodeA, nodeA), cluster.AddNode(nodeB, nodeB), cluster.ServeLocal(r.socket),
		os.WriteFile(filepath.Join(dir, "ca.pem"), cluster.CA(), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.clock(0)
	return r
}

// clock sets the time of the cluster and of the person.
func (r *rig) clock(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = fakecluster.Began.Add(after)
	r.SetClock(r.now)
}

func (r *rig) options() target.Options {
	return target.Options{Contexts: r.store, HostSocket: filepath.Join(r.dir, "none"), Now: func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}}
}

// alice makes an operator and returns the file with her key.
func (r *rig) alice() string {
	r.t.Helper()
	file := filepath.Join(r.dir, "alice.key")
	if err := r.AddOperator("alice", clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR, newKey(r.t, file)); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// byAddress and bySocket are ways to log in.
func (r *rig) byAddress() target.Options {
	options := r.options()
	options.Address, options.CAFile = r.Curator(), filepath.Join(r.dir, "ca.pem")
	return options
}

func (r *rig) bySocket() target.Options {
	options := r.options()
	options.Socket = r.socket
	return options
}

func (r *rig) login(options target.Options, plan target.LoginPlan) *contexts.Session {
	r.t.Helper()
	_, session, err := target.Login(r.t.Context(), options, plan)
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}

func (r *rig) open() *target.Target {
	r.t.Helper()
	cluster, err := target.Open(r.t.Context(), r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cluster.Close() })
	return cluster
}

// list makes a call.
func list(ctx context.Context, cluster *target.Target) error {
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	_, err = management.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	return fault.FromRPC(err, "no list", "")
}

func (r *rig) session() *contexts.Session {
	r.t.Helper()
	session, err := r.store.Session("lab")
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}
