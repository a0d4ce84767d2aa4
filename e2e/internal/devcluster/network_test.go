package devcluster

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestOwnNetwork holds that commands of a cluster with a network of its own are in that one, all in the same, and that the test's own threads stay where they are.
func TestOwnNetwork(t *testing.T) {
	RequireNamespaces(t)
	own := networkOf(t)
	c := &Cluster{network: makeNetwork(t)}
	seen := make(map[string]bool)
	for range 20 { // the main thread is among those that are taken, sooner or later
		var output strings.Builder
		command := exec.Command("readlink", "/proc/self/ns/net")
		command.Stdout = &output
		if err := c.startCommand(command); err != nil {
			t.Fatal(err)
		}
		if err := command.Wait(); err != nil {
			t.Fatal(err)
		}
		seen[strings.TrimSpace(output.String())] = true
		if now := networkOf(t); now != own {
			t.Fatalf("the test is in the network %s, and was in %s", now, own)
		}
	}
	if len(seen) != 1 || seen[own] {
		t.Errorf("the commands were in %v, the test is in %s", seen, own)
	}
}

// networkOf is the network namespace of the main thread.
func networkOf(t *testing.T) string {
	t.Helper()
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return network
}
