package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// peersVersion is the version of the format of the file that keeps peers.
	peersVersion = 1
	// maxPeers is how many peers are taken.
	maxPeers = 64
	// maxZone is how long the zone of an address may be, in bytes: it is the name of an interface.
	maxZone = unix.IFNAMSIZ - 1
)

// peersFile is its content.
type peersFile struct {
	Peers []string `json:"peers"`
}

// dnsName is a name of at most 253 bytes in labels of at most 63.
var dnsName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?$`)

// PeerError says that something is no peer.
type PeerError struct{ Problem string }

func (e *PeerError) Error() string { return "network: " + e.Problem }

var lastDigits = regexp.MustCompile(`(^|\.)[0-9]+\.?$`)

// Peers are the machines, by address or DNS name, on which other nodes of the cluster may be, as the node's operator says. It is always set.
func (r *Room) Peers() *event.Value[[]string] { return &r.peers }

// SetPeers replaces the peers of the call before, keeps them, and returns all that there are now, with those of the parameters. *PeerError if one cannot be a peer. In a dry run it changes
// nothing.
func (r *Room) SetPeers(peers []string, dryRun bool) ([]string, error) {
	if len(peers) > maxPeers {
		return nil, &PeerError{fmt.Sprintf("%d peers are too many: name at most %d", len(peers), maxPeers)}
	}
	for _, peer := range peers {
		if !isPeer(peer) {
			return nil, &PeerError{fmt.Sprintf("%.100q is neither an address nor a DNS name: name the machine without a port", peer)}
		}
	}
	all := withPeers(r.config.Peers, peers)
	if dryRun {
		return all, nil
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	if path := r.config.KeptPeers; path != "" {
		if err := storage.MakeDirectories(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := storage.WriteDocument(path, peersVersion, peersFile{Peers: peers}, 0o600); err != nil {
			return nil, fmt.Errorf("network: cannot keep the peers: %w", err)
		}
	}
	r.peers.Set(all)
	return all, nil
}

// isPeer says whether something is an address or a DNS name. A last label of digits only is of no name, but of an address that is written wrongly.
func isPeer(peer string) bool {
	if address, err := netip.ParseAddr(peer); err == nil {
		return len(address.Zone()) <= maxZone
	}
	return len(peer) <= 254 && dnsName.MatchString(peer) && !lastDigits.MatchString(peer)
}

// readPeers reads the peers of SetPeers from earlier. A file that cannot be read is as good as none.
func (r *Room) readPeers() []string {
	if r.config.KeptPeers == "" {
		return nil
	}
	var file peersFile
	if err := storage.ReadDocument(r.config.KeptPeers, peersVersion, &file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.config.Log.Warn("cannot read the peers that an operator named; going on without them", "error", err)
	}
	return file.Peers
}

// withPeers are all peers, each once.
func withPeers(parameters, set []string) []string {
	all := []string{}
	for _, peer := range slices.Concat(parameters, set) {
		if !slices.Contains(all, peer) {
			all = append(all, peer)
		}
	}
	return all
}
