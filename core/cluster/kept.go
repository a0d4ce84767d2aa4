package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
)

const (
	// keptVersion is the version of the format of the file of curators.
	keptVersion = 1
	// maxKept is how many curators are kept. One that is not one any more costs the node a try, and nothing else: it has to prove itself like any other.
	maxKept = 16
	// keepAgain is how long the node waits until it tries again to keep what it could not, on a full disk say.
	keepAgain = 30 * time.Second
)

// keptFile is the content of the file of curators.
type keptFile struct {
	// Curators are host:port, those that were last in the directory first.
	Curators []string `json:"curators"`
}

// readKept returns the curators from earlier. The file is a help and no more, so that one that cannot be read is as good as none.
func readKept(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var file keptFile
	switch err := storage.ReadDocument(path, keptVersion, &file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster: the file of the curators known from earlier, %s, cannot be used, and is written anew: %w", path, err)
	}
	var list []string
	for _, address := range file.Curators {
		if _, err := hostPort(address); err == nil && len(list) < maxKept {
			list = append(list, address)
		}
	}
	return list, nil
}

// mergeKept is what is kept when the directory names those curators: they, and then the earlier ones. A curator that restarts is in no directory for a moment.
func mergeKept(named, before []string) []string {
	list := slices.Clone(named)
	for _, address := range before {
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list[:min(len(list), maxKept)]
}

// listCurators publishes the curators' addresses, and keeps those of other nodes, until the context ends.
func (c *Client) listCurators(ctx context.Context) {
	capabilities, views, asked := c.config.Capabilities.Watch(), c.view.Watch(), c.asked.Watch()
	var k known
	timer := time.NewTimer(0)
	defer timer.Stop()
	written := c.earlier()
	for {
		select {
		case <-ctx.Done():
			return
		case <-capabilities.Changed():
		case <-views.Changed():
		case <-asked.Changed():
		case <-timer.C:
		}
		timer.Stop()
		k.provided, _ = capabilities.Latest()
		k.view, _ = views.Latest()
		_, _ = asked.Latest()
		if named := curators(nil, k.view); len(named) > 0 {
			slices.Sort(named) // so that the file changes only with the curators
			list := mergeKept(named, c.earlier())
			c.setEarlier(list)
			if c.config.Kept != "" && !slices.Equal(list, written) {
				if err := storage.WriteDocument(c.config.Kept, keptVersion, keptFile{Curators: list}, 0o600); err != nil {
					c.config.Log.Warn("the cluster's curators cannot be kept for the next start; trying again", "error", err, "in", keepAgain)
					timer.Reset(keepAgain)
				} else {
					written = list
				}
			}
		}
		if own := local(k.provided[roles.CapabilityCluster].Endpoints); own != c.ownCurator() {
			c.local.Set(own)
		}
		list := curators(k.provided, k.view)
		if k.view == nil {
			list = mergeKept(list, c.known())
		}
		if before, ok := c.curators.Get(); !ok || !slices.Equal(before, list) {
			c.curators.Set(list)
		}
	}
}

// ownCurator is what LocalCurator holds.
func (c *Client) ownCurator() string {
	own, _ := c.local.Get()
	return own
}

// earlier are the curators that are kept.
func (c *Client) earlier() []string {
	list, _ := c.kept.Get()
	return list
}

func (c *Client) setEarlier(list []string) {
	if !slices.Equal(list, c.earlier()) {
		c.kept.Set(list)
	}
}

// known are the curators from earlier, those that other nodes named, and those that the node knows otherwise.
func (c *Client) known() []string {
	list := slices.Clone(c.earlier())
	for _, address := range c.config.Known() {
		if _, err := hostPort(address); err == nil && !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	ports := make(map[string]bool)
	for _, address := range list {
		if _, port, err := net.SplitHostPort(address); err == nil {
			ports[port] = true
		}
	}
	peers, _ := c.config.Peers.Get()
	for _, peer := range peers {
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			if address := net.JoinHostPort(peer, port); !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	asked, _ := c.asked.Get()
	for _, answer := range asked {
		for _, address := range answer.curators {
			if !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	return list
}

// curators lists the curators: that of this node, and those of the directory.
func curators(provided roles.Capabilities, view *View) []string {
	var list []string
	published, _ := endpoint(provided[roles.CapabilityCluster].Endpoints)
	if address, err := hostPort(published); err == nil {
		list = append(list, address)
	}
	for _, r := range remoteCurators(view) {
		if !slices.Contains(list, r.address) {
			list = append(list, r.address)
		}
	}
	return list
}
