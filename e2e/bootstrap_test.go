package e2e

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// sealed is what the tests read of a sealed configuration whose sealer is a file.
type sealed struct {
	ClusterID string
	Phase     string
	NodeKey   ed25519.PrivateKey
}

// readSealed returns the sealed configuration; ok is false if there is none.
func readSealed(t *testing.T, c *devcluster.Cluster) (s sealed, ok bool) {
	t.Helper()
	configuration := loadSealed(t, c)
	if configuration == nil {
		return s, false
	}
	return sealed{ClusterID: configuration.ClusterID, Phase: string(configuration.Phase), NodeKey: configuration.NodeKey}, true
}

// loadSealed returns the sealed configuration, nil if there is none.
func loadSealed(t *testing.T, c *devcluster.Cluster) *seal.Configuration {
	t.Helper()
	path := c.Path("system", "configuration.json")
	for {
		before, _ := os.Stat(path)
		configuration, err := seal.NewStore(path, seal.File{}).Load(t.Context())
		if err == nil {
			return configuration
		}
		// What was replaced is erased, also under the eyes of who opened it before.
		if after, statErr := os.Stat(path); statErr == nil && (before == nil || !os.SameFile(before, after)) {
			continue
		}
		t.Fatalf("the sealed configuration, which is replaced as a whole, is torn: %v", err)
	}
}

func awaitEnd(t *testing.T, process procfs.Process) {
	t.Helper()
	handle, err := procfs.Hold(process)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := handle.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// finishes starts the node again and checks that the cluster is the one that was begun.
func finishes(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	before, _ := readSealed(t, c)
	status := c.Up(t)
	after, _ := readSealed(t, c)
	if after.Phase != "member" || after.ClusterID != before.ClusterID || status.Cluster.ID != before.ClusterID {
		t.Errorf("begun with cluster %s (%s), finished with %s (%s), and the node is in %s",
			before.ClusterID, before.Phase, after.ClusterID, after.Phase, status.Cluster.ID)
	}
	if !after.NodeKey.Equal(before.NodeKey) {
		t.Error("the node has another key than before")
	}
	onlyThese(t, c, status)
	nodeList(t, c, status)
}

// TestBootstrapAnswerLost takes back the last step of the bootstrap: the transaction is in the store, and the node does not know it.
func TestBootstrapAnswerLost(t *testing.T) {
	t.Parallel()
	for name, lose := range inOrder(map[string]func(t *testing.T, c *devcluster.Cluster){
		"with the certificates": func(*testing.T, *devcluster.Cluster) {},
		"without the certificates": func(t *testing.T, c *devcluster.Cluster) {
			if err := os.RemoveAll(c.Path("data", "identity")); err != nil {
				t.Fatal(err)
			}
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.Up(t)
			c.Down(t)
			file := c.Path("system", "configuration.json")
			configuration := loadSealed(t, c)
			if configuration == nil || configuration.Phase != seal.Member {
				t.Fatalf("the node is not a member: %+v", configuration)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			configuration.Phase = seal.Formed
			if err := seal.NewStore(file, seal.File{}).Save(t.Context(), configuration); err != nil {
				t.Fatal(err)
			}
			lose(t, c)
			finishes(t, c)
		})
	}
}

// TestStoreDeleted deletes etcd's directory, alone or with all that the role had: the node says so and never makes a store anew.
func TestStoreDeleted(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		c.Down(t)
		role := c.Path("data", "roles", "consensus")
		storeDeleted(t, c, filepath.Join(role, "etcd"), filepath.Join(role, "etcd"))
		storeDeleted(t, c, role, filepath.Join(role, "etcd"))
	})
}

func storeDeleted(t *testing.T, c *devcluster.Cluster, remove, store string) {
	t.Helper()
	before, _ := readSealed(t, c)
	if _, err := os.Stat(remove); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(remove); err != nil {
		t.Fatal(err)
	}
	// The node says what is wrong, for as long as it runs: dev up would end it soon.
	c.StartCore(t, "")
	c.Await(t, patience, "consensus Failed with a reason that names the directory", func(s devcluster.Status) bool {
		role := s.Role("consensus")
		return role.State == "Failed" && strings.Contains(role.Reason, filepath.Dir(store))
	})
	c.Down(t)
	if result := c.Reeve(t, "dev", "up", "--detach"); result.Code <= 0 || !strings.Contains(result.Stderr, filepath.Dir(store)) {
		t.Errorf("dev up has to fail and to name the directory: %s", result)
	}
	c.NoProcesses(t)
	after, _ := readSealed(t, c)
	if after.ClusterID != before.ClusterID || after.Phase != before.Phase {
		t.Errorf("the sealed configuration was changed: %+v, before %+v", after, before)
	}
	if entries, err := os.ReadDir(store); err == nil && len(entries) > 0 {
		t.Errorf("there is a store again: %v", entries)
	}
}

// TestSealedConfigurationUnreadable damages the sealed configuration: the node is not set up again.
func TestSealedConfigurationUnreadable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Up(t)
	c.Down(t)
	before, _ := readSealed(t, c)
	file := c.Path("system", "configuration.json")
	backup := file + ".backup"
	if err := os.Rename(file, backup); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	result := c.Reeve(t, "dev", "up", "--detach")
	if result.Code == 0 || !strings.Contains(result.Stderr, file) {
		t.Errorf("dev up has to fail and to name %s: %s", file, result)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "{" {
		t.Errorf("the file was changed: %q, %v", content, err)
	}
	if err := os.Rename(backup, file); err != nil {
		t.Fatal(err)
	}
	if status := c.Up(t); status.Cluster.ID != before.ClusterID {
		t.Errorf("with the file back it is cluster %s, want %s", status.Cluster.ID, before.ClusterID)
	}
}
