package seal

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// version is the format version of the sealed configuration. The one before it, earliest, is still read; it knows only nodes that made their cluster.
const (
	version  = 3
	earliest = 2
)

// document is the content of the file.
type document struct {
	Open open `json:"open"`
	// Key is the sealed configuration key.
	Key json.RawMessage `json:"key"`
	// Secrets are the secret fields, encrypted with the configuration key. Open is the associated data, so a change to it is noticed.
	Secrets []byte `json:"secrets"`
	// version is the file's format version.
	version int
}

// open are the public fields.
type open struct {
	Sealer            string             `json:"sealer"`
	ClusterID         string             `json:"cluster_id"`
	NodeID            string             `json:"node_id"`
	Owner             []byte             `json:"owner_public_key"`
	RecoveryRecipient string             `json:"recovery_recipient,omitempty"`
	VolumeKind        storage.VolumeKind `json:"volume_kind"`
	Location          string             `json:"volume_location,omitempty"`
	Phase             Phase              `json:"phase"`
	CUKSources        []string           `json:"cuk_sources,omitempty"`
	StoreFormed       bool               `json:"store_formed,omitempty"`
	Registration      *Registration      `json:"registration,omitempty"`
	Restored          string             `json:"restored,omitempty"`
}

// errOtherKey says that the unsealed configuration key does not open the secrets.
var errOtherKey = errors.New("it is damaged: its own key does not open its secrets")

// read returns the document in a file. fs.ErrNotExist if there is none, *UnreadableError if it cannot be read.
func read(path string) (document, error) {
	d := document{version: version}
	err := storage.ReadDocument(path, version, &d)
	var other *storage.VersionError
	if errors.As(err, &other) && other.Found == earliest {
		d = document{version: earliest}
		err = storage.ReadDocument(path, earliest, &d)
	}
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return d, err
	case errors.As(err, &other) && other.Found < earliest:
		err = fmt.Errorf("%w; reeved wrote version %d before its first release: set up the node again with empty directories", err, other.Found)
	}
	return document{}, &UnreadableError{Path: path, Err: err}
}

// encrypt returns the document of a configuration.
func encrypt(c *Configuration, sealer string, key *keys.Secret, sealed json.RawMessage) (document, error) {
	d := document{
		Open: open{
			Sealer: sealer, ClusterID: c.ClusterID, NodeID: c.NodeID(), Owner: c.Owner, RecoveryRecipient: c.RecoveryRecipient,
			VolumeKind: c.VolumeKind, Location: c.Location, Phase: c.Phase, CUKSources: c.CUKSources, StoreFormed: c.StoreFormed, Registration: c.Registration,
			Restored: c.Restored,
		},
		Key: sealed, version: version,
	}
	associated, err := d.associated()
	if err != nil {
		return document{}, err
	}
	plain, err := encodeSecrets(c)
	if err != nil {
		return document{}, err
	}
	defer plain.Destroy()
	d.Secrets, err = keys.Encrypt(key, plain, associated)
	return d, err
}

// decrypt returns the configuration in a document.
func (d document) decrypt(key *keys.Secret) (*Configuration, error) {
	associated, err := d.associated()
	if err != nil {
		return nil, err
	}
	plain, err := keys.Decrypt(key, d.Secrets, associated)
	if errors.Is(err, keys.ErrDamaged) {
		return nil, errOtherKey
	}
	if err != nil {
		return nil, err
	}
	defer plain.Destroy()
	c := &Configuration{
		ClusterID: d.Open.ClusterID, Owner: d.Open.Owner, RecoveryRecipient: d.Open.RecoveryRecipient,
		VolumeKind: d.Open.VolumeKind, Location: d.Open.Location, Phase: d.Open.Phase, CUKSources: d.Open.CUKSources,
		StoreFormed: d.storeFormed(), Registration: d.Open.Registration, Restored: d.Open.Restored,
	}
	err = plain.Use(func(content []byte) error { return decodeSecrets(content, c) })
	if err == nil {
		err = c.check()
	}
	if err == nil && c.NodeID() != d.Open.NodeID {
		err = errors.New("its node key does not belong to the node that it names")
	}
	if err != nil {
		c.Destroy()
		return nil, err
	}
	return c, nil
}

// associated is the associated data of the secrets.
func (d document) associated() ([]byte, error) {
	encoded, err := json.Marshal(d.Open)
	return append(fmt.Appendf(nil, "reeve configuration v%d\n", d.version), encoded...), err
}

// storeFormed says whether the node has a member of the store. The earlier version knew only nodes that make their cluster; those have one once they
// are Formed.
func (d document) storeFormed() bool {
	return d.Open.StoreFormed || d.version == earliest && !d.Open.Phase.Before(Formed)
}

// The numbers of the secret fields in the file. They are not JSON, because encoding/json would leave copies in memory.
const (
	fieldNodeKey = iota + 1
	fieldJoinKey
	fieldNUK
	fieldNextNUK
	fieldCUK
	fieldData
	fieldTicket
	lastField = fieldTicket
)

// fieldHead is the size of a field's number and length.
const fieldHead = 1 + 2

// secrets are the fields by number. A nil secret is not written.
func (c *Configuration) secrets() [lastField + 1]**keys.Secret {
	return [...]**keys.Secret{fieldNUK: &c.NUK, fieldNextNUK: &c.NextNUK, fieldCUK: &c.CUK, fieldData: &c.Data, fieldTicket: &c.Ticket}
}

// encodeSecrets writes each secret field with its number and length.
func encodeSecrets(c *Configuration) (*keys.Secret, error) {
	size := 2 * (fieldHead + ed25519.SeedSize)
	for _, secret := range c.secrets() {
		if secret != nil && *secret != nil {
			size += fieldHead + (*secret).Len()
		}
	}
	return keys.Fill(size, func(content []byte) error {
		rest := content
		put := func(field int, value []byte) error {
			if len(value) == 0 || len(value) > 1<<16-1 || len(rest) < fieldHead+len(value) {
				return fmt.Errorf("field %d of %d bytes does not fit", field, len(value))
			}
			rest[0] = byte(field)
			binary.BigEndian.PutUint16(rest[1:], uint16(len(value)))
			rest = rest[fieldHead+copy(rest[fieldHead:], value):]
			return nil
		}
		// The first half of a private key is its seed. Seed() would copy it.
		if err := errors.Join(put(fieldNodeKey, c.NodeKey[:ed25519.SeedSize]), put(fieldJoinKey, c.JoinKey[:ed25519.SeedSize])); err != nil {
			return err
		}
		for field, secret := range c.secrets() {
			if secret == nil || *secret == nil {
				continue
			}
			if err := (*secret).Use(func(value []byte) error { return put(field, value) }); err != nil {
				return err
			}
		}
		if len(rest) != 0 {
			return keys.ErrDestroyed
		}
		return nil
	})
}

// decodeSecrets reads what encodeSecrets wrote. The content is authenticated, so only another version of reeved could have written anything else.
func decodeSecrets(content []byte, c *Configuration) error {
	wrong := errors.New("this reeved does not know its secret fields")
	for last := 0; len(content) > 0; {
		if len(content) < fieldHead {
			return wrong
		}
		field, size := int(content[0]), int(binary.BigEndian.Uint16(content[1:]))
		content = content[fieldHead:]
		if field <= last || field > lastField || size == 0 || size > len(content) {
			return wrong
		}
		value := content[:size]
		last, content = field, content[size:]
		switch field {
		case fieldNodeKey, fieldJoinKey:
			if size != ed25519.SeedSize {
				return wrong
			}
			key := &c.NodeKey
			if field == fieldJoinKey {
				key = &c.JoinKey
			}
			*key = ed25519.NewKeyFromSeed(value)
		default:
			if field != fieldData && size != keys.Size {
				return wrong
			}
			secret, err := keys.Fill(size, func(next []byte) error { copy(next, value); return nil })
			if err != nil {
				return err
			}
			*c.secrets()[field] = secret
		}
	}
	return nil
}
