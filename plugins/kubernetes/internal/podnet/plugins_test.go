package podnet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"
)

// built is where `make deps-kubernetes` puts the CNI plugins.
const built = "../../../../bin/kubernetes"

// plugins returns the directory with the real CNI plugins.
func plugins(t *testing.T) string {
	t.Helper()
	directory, err := filepath.Abs(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ptp", "host-local", "portmap"} {
		if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
			t.Skipf("not run: there is no CNI plugin %s, which make deps-kubernetes builds (%v)", name, err)
		}
	}
	return directory
}

// call calls the plugins of the node's configuration for a pod one after the other, as containerd does; for DEL the other way round. It returns the last one's result.
func (n *node) call(t *testing.T, command string, p *namespace, id string, result json.RawMessage, runtime any) json.RawMessage {
	t.Helper()
	directory := plugins(t)
	content, err := os.ReadFile(filepath.Join(n.config.ConfDir, podnet.ConfFile))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		CNIVersion string
		Name       string
		Plugins    []map[string]any
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Plugins {
		if command == "DEL" {
			i = len(list.Plugins) - 1 - i
		}
		configuration := list.Plugins[i]
		configuration["cniVersion"], configuration["name"], configuration["runtimeConfig"] = list.CNIVersion, list.Name, runtime
		if len(result) > 0 {
			configuration["prevResult"] = result
		}
		input, err := json.Marshal(configuration)
		if err != nil {
			t.Fatal(err)
		}
		name := configuration["type"].(string)
		n.must(t, func() error {
			plugin := exec.Command(filepath.Join(directory, name))
			plugin.Env = []string{"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id, "CNI_NETNS=" + p.path(), "CNI_IFNAME=eth0", "CNI_PATH=" + directory}
			plugin.Stdin = bytes.NewReader(input)
			output, err := plugin.Output()
			if err != nil {
				return fmt.Errorf("the plugin %s: %w: %s", name, err, output)
			}
			if command == "ADD" {
				result = output
			}
			return nil
		})
	}
	return result
}

// TestPlugins: the real CNI plugins take the configuration. Pods have addresses and ports of the host, and nothing is left of them.
func TestPlugins(t *testing.T) {
	plugins(t)
	c := newCluster(t, 2, false)
	for _, n := range c.nodes {
		// Addresses are used at once.
		n.sysctl(t, "net/ipv6/conf/default/accept_dad", "0")
	}
	here, there := c.nodes[0], c.nodes[1]
	before := here.state(t)
	c.up(t)

	ports := map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
	a, b := newNamespace(t, "pod a"), newNamespace(t, "pod b")
	for _, p := range []*namespace{a, b} {
		p.sysctl(t, "net/ipv6/conf/default/accept_dad", "0")
	}
	added := here.call(t, "ADD", a, "a", nil, ports)
	there.call(t, "ADD", b, "b", nil, nil)
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(added, &result); err != nil || len(result.IPs) != 2 {
		t.Fatalf("the pod has %s, %v", added, err)
	}
	a.must(t, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil && link.Attrs().MTU != 1450 {
			err = fmt.Errorf("the pod has an MTU of %d", link.Attrs().MTU)
		}
		return err
	})
	for i, ip := range result.IPs {
		address := ip.Address.Addr()
		if !here.config.Pods[i].Contains(address) {
			t.Errorf("the pod has the address %s", address)
		}
		gateway, remote := here.config.Pods[i].Addr().Next().String(), there.config.Pods[i].Addr().Next().Next()
		a.reaches(t, b.serve(t, remote.String()), address.String())
		a.reaches(t, c.wire.serve(t, []string{outside4, outside6}[i]), here.addresses[i].String())
		a.serveAt(t, net.JoinHostPort(address.String(), "80"))
		b.reaches(t, net.JoinHostPort(address.String(), "80"), remote.String())
		here.reaches(t, net.JoinHostPort(address.String(), "80"), gateway)
		c.wire.reaches(t, net.JoinHostPort(here.addresses[i].String(), "8080"), []string{outside4, outside6}[i])
	}

	here.call(t, "DEL", a, "a", added, ports)
	if left, err := filepath.Glob(filepath.Join(here.config.Directory, "*", "10.*")); err != nil || len(left) > 0 {
		t.Errorf("addresses are left: %v, %v", left, err)
	}
	// One of another program that uses the plugin stays.
	here.run(t, "nft", "add", "rule", "ip", "cni_hostport", "hostports", "tcp dport 9 dnat to 10.9.9.9:9")
	here.down(t)
	if state := strings.Join(here.state(t), "\n"); !strings.Contains(state, "10.9.9.9") {
		t.Errorf("a rule of another's is gone:\n%s", state)
	}
	here.run(t, "nft", "flush", "chain", "ip", "cni_hostport", "hostports")
	here.up(t)
	here.down(t)
	if changed := differences(before, here.state(t)); changed != "" {
		t.Errorf("there is left:\n%s", changed)
	}
}
