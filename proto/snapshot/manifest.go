package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

// Format is the number of the format that this package writes and reads.
const Format = 1

// Compression is how payloads are compressed.
const Compression = "zstd"

const (
	// MaxManifest is how long the line of a manifest may be, in bytes. It has some 700.
	MaxManifest = 64 << 10
	// MaxDatabase is how many bytes of a database a snapshot may hold. A store's quota is at most 8 GiB: more is not a store, and would fill whoever opens it.
	MaxDatabase = 64 << 30
	// MaxUsers is how many users the manifest tells the keys of.
	MaxUsers = 512
	// maxText is how long a text of a manifest may be. The public half of a recovery key that withstands quantum computers has 2,000 bytes.
	maxText = 4 << 10
)

// Manifest says what a snapshot holds.
type Manifest struct {
	// ClusterID is the cluster's, NodeID and MemberID those of whose copy of the store it is.
	ClusterID string `json:"cluster_id"`
	NodeID    string `json:"node_id"`
	MemberID  string `json:"member_id"`
	// Time is when it was taken, by the clock of that node.
	Time time.Time `json:"time"`
	// Revision is the store's: the snapshot has every change up to it, and none after it. History before CompactRevision is left out.
	Revision        int64 `json:"revision"`
	CompactRevision int64 `json:"compact_revision"`
	// ReeveVersion is the version of the role that took it, StorageVersion that of etcd's storage; empty: etcd did not say.
	ReeveVersion   string `json:"reeve_version"`
	StorageVersion string `json:"storage_version"`
	// Compression is Compression. Recipient is the public half of the recovery key that opens the payload (age); empty: it is not sealed.
	Compression string `json:"compression"`
	Recipient   string `json:"recipient"`
	// DatabaseSize and DatabaseSHA256 are of what is in the payload, PayloadSize and PayloadSHA256 of the payload as it is in the file.
	DatabaseSize   int64  `json:"database_size"`
	DatabaseSHA256 string `json:"database_sha256"`
	PayloadSize    int64  `json:"payload_size"`
	PayloadSHA256  string `json:"payload_sha256"`
	// Rehearsal is what was found when it was restored, before it was sealed; nil: nobody has tried.
	Rehearsal *Rehearsal `json:"rehearsal"`
}

// Rehearsal says what a snapshot held when it was restored into an etcd that was thrown away: what the store held at its revision.
type Rehearsal struct {
	// Keys is how many keys there were in all, and Users how many each ConsensusUser had.
	Keys  int64            `json:"keys"`
	Users map[string]int64 `json:"users"`
	// Records is how many keys of the cluster user were read by the cluster API before it signed the manifest.
	Records int64 `json:"records"`
}

// Marshal returns the line of the manifest, without its end.
func (m *Manifest) Marshal() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	line, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return line, nil
}

// ParseManifest reads the line of a manifest. Fields that it does not know are skipped: a later version may say more.
func ParseManifest(line []byte) (*Manifest, error) {
	if len(line) > MaxManifest {
		return nil, fmt.Errorf("snapshot: the manifest has %d bytes, and may have %d", len(line), MaxManifest)
	}
	m := new(Manifest)
	if err := json.Unmarshal(line, m); err != nil {
		return nil, fmt.Errorf("snapshot: the manifest is damaged: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return m, nil
}

func (r *Rehearsal) check() error {
	if r == nil {
		return nil
	}
	if len(r.Users) > MaxUsers {
		return fmt.Errorf("the manifest names %d users, and may name %d", len(r.Users), MaxUsers)
	}
	for user, keys := range r.Users {
		if !identity.ValidConsensusUser(user) || keys < 0 || keys > r.Keys {
			return fmt.Errorf("the manifest has %d keys of a user %q of %d in all", keys, limits.Cut(user, 64), r.Keys)
		}
	}
	if r.Records < 0 || r.Records > r.Keys {
		return fmt.Errorf("the manifest has %d records of %d keys", r.Records, r.Keys)
	}
	return nil
}

func (m *Manifest) check() error {
	for name, text := range map[string]string{
		"cluster_id": m.ClusterID, "node_id": m.NodeID, "member_id": m.MemberID, "reeve_version": m.ReeveVersion, "storage_version": m.StorageVersion, "recipient": m.Recipient,
	} {
		if text == "" && name != "storage_version" && name != "recipient" {
			return fmt.Errorf("the manifest has no %s", name)
		}
		if len(text) > maxText || !limits.Line(text) {
			return fmt.Errorf("the manifest's %s is not one line of at most %d bytes", name, maxText)
		}
	}
	for name, hash := range map[string]string{"database_sha256": m.DatabaseSHA256, "payload_sha256": m.PayloadSHA256} {
		if sum, err := hex.DecodeString(hash); err != nil || len(sum) != sha256.Size || hash != strings.ToLower(hash) {
			return fmt.Errorf("the manifest's %s is not the SHA-256 of anything: %d hexadecimal digits", name, 2*sha256.Size)
		}
	}
	if err := m.Rehearsal.check(); err != nil {
		return err
	}
	switch {
	case m.Compression != Compression:
		return fmt.Errorf("the payload is compressed by %q, and this version knows %q only", limits.Cut(m.Compression, 64), Compression)
	case m.Time.IsZero():
		return errors.New("the manifest has no time")
	case m.Revision < 1 || m.CompactRevision < 0 || m.CompactRevision > m.Revision:
		return fmt.Errorf("the manifest's revision %d, compacted to %d, is none of a store", m.Revision, m.CompactRevision)
	case m.DatabaseSize > MaxDatabase:
		return fmt.Errorf("the manifest's database has %d bytes, and may have %d", m.DatabaseSize, int64(MaxDatabase))
	case m.DatabaseSize < 1 || m.PayloadSize < 1:
		return fmt.Errorf("the manifest's sizes, %d bytes of a database in %d of a payload, are none", m.DatabaseSize, m.PayloadSize)
	}
	return nil
}
