package podnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

const (
	// ConfFile is the name of the CNI configuration, which comes before others'.
	ConfFile = "10-reeve.conflist"
	// cniNetwork is the name of the network in it, and of the directory in which host-local keeps addresses.
	cniNetwork = "reeve"
	// cniVersion is one that both the plugins and containerds older than those that we build speak.
	cniVersion = "1.0.0"
)

// The CNI configuration, as far as there is one of it.
type (
	confList struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []any  `json:"plugins"`
	}
	pointToPoint struct {
		Type string    `json:"type"`
		MTU  int       `json:"mtu"`
		IPAM hostLocal `json:"ipam"`
	}
	hostLocal struct {
		Type    string        `json:"type"`
		DataDir string        `json:"dataDir"`
		Ranges  [][]hostRange `json:"ranges"`
		Routes  []hostRoute   `json:"routes"`
	}
	hostRange struct {
		Subnet  netip.Prefix `json:"subnet"`
		Gateway netip.Addr   `json:"gateway"`
	}
	hostRoute struct {
		Dst string `json:"dst"`
	}
	portMap struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		Backend      string          `json:"backend"`
		SNAT         bool            `json:"snat"`
	}
)

// configure writes the CNI configuration: from then on containerd makes pods.
func (n *Network) configure(context.Context) error {
	mtu, err := n.config.mtu()
	if err != nil {
		return err
	}
	first := pointToPoint{Type: "ptp", MTU: mtu, IPAM: hostLocal{Type: "host-local", DataDir: n.config.Directory}}
	for _, pods := range n.config.Pods {
		first.IPAM.Ranges = append(first.IPAM.Ranges, []hostRange{{Subnet: pods, Gateway: gateway(pods)}})
		everything := "0.0.0.0/0"
		if pods.Addr().Is6() {
			everything = "::/0"
		}
		first.IPAM.Routes = append(first.IPAM.Routes, hostRoute{everything})
	}
	content, err := json.MarshalIndent(confList{CNIVersion: cniVersion, Name: cniNetwork, Plugins: []any{
		first, portMap{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}, Backend: "nftables", SNAT: true},
	}}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.config.Directory, 0o700); err != nil {
		return fmt.Errorf("the directory of pods' addresses: %w", err)
	}
	return writeFile(filepath.Join(n.config.ConfDir, ConfFile), append(content, '\n'))
}

// writeFile replaces a file atomically and durably. One that has the content already is left alone.
func writeFile(path string, content []byte) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("the directory of the CNI configuration: %w", err)
	}
	if err := renameio.WriteFile(path, content, 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// removeFiles removes the CNI configuration and the addresses that host-local has given.
func (c *Config) removeFiles() error {
	var problems []error
	if err := os.Remove(filepath.Join(c.ConfDir, ConfFile)); err == nil {
		problems = append(problems, syncDirectory(c.ConfDir))
	} else if !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, fmt.Errorf("remove the CNI configuration: %w", err))
	}
	if err := os.RemoveAll(filepath.Join(c.Directory, cniNetwork)); err != nil {
		problems = append(problems, fmt.Errorf("remove the addresses of pods: %w", err))
	}
	// Whatever else is there is not this package's.
	_ = os.Remove(c.Directory)
	return errors.Join(problems...)
}
