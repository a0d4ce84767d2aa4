package devcluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespacesDirectory is where the system keeps network namespaces by their names.
const namespacesDirectory = "/run/netns"

// Node is a node of the dev directory as `reeve dev status -o json` shows it.
type Node struct {
	Number    int    `json:"number"`
	Directory string `json:"directory"`
	PID       int    `json:"pid"`
	// Namespace is the name of its network namespace; empty: it has none of its own.
	Namespace string `json:"namespace"`
	Address   string `json:"address"`
	// Status is nil if the node does not run.
	Status *Status `json:"status"`
}

// Nodes returns the nodes of the dev directory, by their numbers.
func (c *Cluster) Nodes(t testing.TB) map[int]Node {
	t.Helper()
	result := c.MustReeve(t, "dev", "status", "-o", "json")
	var document struct {
		Nodes []Node `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	nodes := make(map[int]Node)
	for _, node := range document.Nodes {
		nodes[node.Number] = node
	}
	return nodes
}

func (c *Cluster) node(t testing.TB, number int) Node {
	t.Helper()
	node, ok := c.Nodes(t)[number]
	if !ok {
		t.Fatalf("there is no node %d in %s", number, c.Directory)
	}
	return node
}

// NodeDirectory is the directory of the node with a number, for `--dir`.
func (c *Cluster) NodeDirectory(number int) string {
	if number == 1 {
		return c.Directory
	}
	return filepath.Join(c.State(), nodesDirectory, strconv.Itoa(number))
}

// Namespace is the name of the network namespace of a node, in a cluster that was made with --netns.
func (c *Cluster) Namespace(t testing.TB, number int) string {
	t.Helper()
	name := c.node(t, number).Namespace
	if name == "" {
		t.Fatalf("node %d has no network namespace: the cluster was made without --netns", number)
	}
	return name
}

// Address is the address of a node.
func (c *Cluster) Address(t testing.TB, number int) string {
	t.Helper()
	return c.node(t, number).Address
}

// RequireNamespaces skips the test where no network namespaces can be made, and says why.
func RequireNamespaces(t testing.TB) {
	t.Helper()
	if lacks := LacksNamespaces(); lacks != "" {
		t.Skip(lacks)
	}
}

// LacksNamespaces says why the test can make no network namespaces; empty: it can.
func LacksNamespaces() string {
	if os.Geteuid() != 0 {
		return "needs root: network namespaces are made"
	}
	if err := onOwnThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }); errors.Is(err, unix.EPERM) {
		return "needs CAP_SYS_ADMIN: network namespaces are made"
	}
	return ""
}

// InNamespace calls do on a thread that is in a network namespace: what it listens on and connects to, and the processes that it starts, are in it. Goroutines that it
// starts are not.
func InNamespace(name string, do func() error) error {
	return onOwnThread(func() error { return enter(name, do) })
}

func enter(name string, do func() error) error {
	target, err := os.Open(filepath.Join(namespacesDirectory, name))
	if err != nil {
		return err
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", name, err)
	}
	return do()
}

// ExecIn runs a program of the machine in the network namespace of a node, returns its standard output, and fails the test if it fails.
func (c *Cluster) ExecIn(t testing.TB, number int, program string, arguments ...string) string {
	t.Helper()
	var output, said strings.Builder
	err := InNamespace(c.Namespace(t, number), func() error {
		command := exec.Command(program, arguments...)
		// ip warns there of namespaces that other tests have just removed.
		command.Stdout, command.Stderr = &output, &said
		return command.Run()
	})
	if err != nil {
		t.Fatalf("%s %q as node %d: %v\n%s%s", program, arguments, number, err, &output, &said)
	}
	return output.String()
}

// short is in the names of what the nodes have of the machine's network.
func (c *Cluster) short() string {
	sum := sha256.Sum256([]byte(c.State()))
	return hex.EncodeToString(sum[:])[:6]
}

// bridge is the name of the bridge of the nodes.
func (c *Cluster) bridge() string { return "rv" + c.short() }

// namespaces are the names of the network namespaces of the nodes that there are.
func (c *Cluster) namespaces() (names []string) {
	// Not asked for with `reeve dev status`: a node that does not answer is no reason to leave its namespace.
	found, _ := filepath.Glob(filepath.Join(namespacesDirectory, "reeve-"+c.short()+"-*"))
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// endBridge fails the test for a bridge that `reeve dev down` has left.
func endBridge(t testing.TB, name string) {
	if _, err := net.InterfaceByName(name); err != nil {
		return
	}
	t.Errorf("left at the end: the bridge %s", name)
	if output, err := exec.Command("ip", "link", "delete", name).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// endNamespaces fails the test for network namespaces that `reeve dev down` has left.
func endNamespaces(t testing.TB, names []string) {
	for _, name := range names {
		t.Errorf("left at the end: the network namespace %s", name)
		_ = unix.Unmount(filepath.Join(namespacesDirectory, name), unix.MNT_DETACH)
		if err := os.Remove(filepath.Join(namespacesDirectory, name)); err != nil {
			t.Error(err)
		}
	}
}
