package catalog

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// collectEvery is how often the node looks for executables that it has no use for.
	collectEvery = 15 * time.Minute
	// forgetAfter is how long an executable stays that no role of the node is known to use. The node sees the catalog's entries of its own roles only: it
	// may belong to a plugin whose role is added to the node tomorrow, or to a version that still waits for the owner.
	forgetAfter = 30 * 24 * time.Hour
	// collectorVersion is the version of the format of the collector's file.
	collectorVersion = 1
	// maxLedger is how large that file is at most, in bytes.
	maxLedger = 1 << 20
)

// Collector removes the executables that the node has no use for: those of versions that others have taken the place of, and those that nobody has used
// for a month. The store waits an hour besides.
type Collector struct {
	Log hclog.Logger
	// Path is the file of the ledger.
	Path      string
	Desired   *event.Value[roles.Desired]
	Instances *event.Value[roles.Instances]
	// View has the catalog's entries of the node's roles; Known is what there was of them when the core started, and Genesis says that this is the whole
	// first catalog.
	View    *event.Value[*cluster.View]
	Known   []*clusterv1.PluginRecord
	Genesis bool
	Collect func(keep func(digest string) bool) (removed []string, err error)
	Now     func() time.Time
}

// lastUse is when an executable was last of use, and to which plugin.
type lastUse struct {
	Plugin string    `json:"plugin,omitempty"`
	Seen   time.Time `json:"seen"`
	// Genesis says that it is of a plugin with which the cluster was made: its roles may be added to the node at any time.
	Genesis bool `json:"genesis,omitempty"`
}

// ledger is the file of the last uses, by digest.
type ledger struct {
	Version int                `json:"version"`
	Uses    map[string]lastUse `json:"uses"`
}

// Run collects now and then until the context ends.
func (c Collector) Run(ctx context.Context) {
	if _, err := c.Desired.Wait(ctx, func(roles.Desired) bool { return true }); err != nil {
		return
	}
	for {
		c.once()
		select {
		case <-ctx.Done():
			return
		case <-time.After(collectEvery):
		}
	}
}

func (c Collector) once() {
	uses, err := readLedger(c.Path)
	if err != nil {
		c.Log.Warn("it is not known which executables were of use; the time that they are kept begins anew", "file", c.Path, "error", err)
		uses = make(map[string]lastUse)
	}
	used, known := c.used()
	builtin := make(map[string]bool)
	for _, record := range c.Known {
		for _, digest := range record.GetDigests() {
			builtin[digest] = c.Genesis
		}
	}
	now, present := c.Now(), make(map[string]lastUse)
	removed, err := c.Collect(func(digest string) bool {
		use, seen := uses[digest]
		name, wanted := used[digest]
		switch {
		case wanted:
			use.Plugin, use.Seen = name, now
		case !seen, use.Seen.After(now): // the clock was set back
			use.Seen = now
		}
		use.Genesis = use.Genesis || builtin[digest]
		present[digest] = use
		superseded := use.Plugin != "" && known[use.Plugin]
		return wanted || !superseded && (use.Genesis || now.Sub(use.Seen) < forgetAfter)
	})
	for _, digest := range removed {
		delete(present, digest)
		c.Log.Info("removed an executable that nothing uses any more", "digest", digest, "plugin", uses[digest].Plugin)
	}
	if err != nil {
		c.Log.Warn("executables that nothing uses any more cannot be removed", "error", err)
		return
	}
	if err := storage.WriteJSON(c.Path, ledger{Version: collectorVersion, Uses: present}, 0o600); err != nil {
		c.Log.Warn("which executables were of use cannot be kept", "error", err)
	}
}

// used returns the plugin of every executable that is of use, and which plugins the node knows.
func (c Collector) used() (used map[string]string, known map[string]bool) {
	used, known = make(map[string]string), make(map[string]bool)
	records := c.Known
	if view, _ := c.View.Get(); view != nil {
		records = view.Plugins
	}
	for _, record := range records {
		known[record.GetName()] = true
		for _, digests := range []map[string]string{record.GetDigests(), record.GetPrevious().GetDigests(), record.GetWaiting().GetDigests()} {
			for _, digest := range digests {
				used[digest] = record.GetName()
			}
		}
	}
	now, _ := c.Instances.Get()
	for _, instance := range now {
		if digest := instance.Status.GetDigest(); digest != "" {
			used[digest] = instance.Status.GetPlugin()
		}
	}
	return used, known
}

func readLedger(path string) (map[string]lastUse, error) {
	content, err := storage.ReadSmall(path, maxLedger)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[string]lastUse), nil
	}
	if err != nil {
		return nil, err
	}
	return parseLedger(content)
}

func parseLedger(content []byte) (map[string]lastUse, error) {
	var file ledger
	if err := storage.ParseJSON(content, collectorVersion, &file); err != nil {
		return nil, err
	}
	if file.Uses == nil {
		file.Uses = make(map[string]lastUse)
	}
	return file.Uses, nil
}
