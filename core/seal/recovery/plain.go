package recovery

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

// ErrNotRecovered says that the input is not the content of a recovery file. It quotes nothing of it, because it may be a secret.
var ErrNotRecovered = errors.New("recovery: this is not the content of a node's recovery file: pass the decrypted text unchanged")

// known are the public fields.
type known struct {
	Version   int                `json:"version"`
	ClusterID string             `json:"cluster_id"`
	Owner     []byte             `json:"owner_public_key"`
	Kind      storage.VolumeKind `json:"volume_kind"`
	Location  string             `json:"volume_location"`
	Sealer    string             `json:"sealer"`
	// Registration is left out if there is none, for readers that do not know it.
	Registration *seal.Registration `json:"registration,omitempty"`
	// Recipient is missing in files of older nodes.
	Recipient string `json:"recovery_recipient,omitempty"`
}

// content is everything in the file.
type content struct {
	known
	NodeKey []byte `json:"node_key"`
	JoinKey []byte `json:"join_key"`
	NUK     []byte `json:"nuk"`
	CUK     []byte `json:"cuk"`
	Data    []byte `json:"data_key"`
}

// clear zeroes the secret fields.
func (c *content) clear() {
	for _, secret := range [][]byte{c.NodeKey, c.JoinKey, c.NUK, c.CUK, c.Data} {
		clear(secret)
	}
}

// tag is the number of bytes that age adds to a ciphertext.
const tag = 16

// encode returns the JSON of r. It writes the secrets by hand into a Secret's memory, because encoding/json would keep copies. It pads the JSON with
// spaces so that with age's tag it is exactly a power of two: age's buffer then has that size at once and encrypts in place. A buffer that grows
// would leave copies behind.
func encode(r *Recovered) (*keys.Secret, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	head, err := json.Marshal(known{
		Version: version, ClusterID: r.ClusterID, Owner: r.Owner, Kind: r.Kind, Location: r.Location, Sealer: r.Sealer, Registration: r.Registration,
		Recipient: r.Recipient,
	})
	if err != nil {
		return nil, err
	}
	head = bytes.TrimSuffix(head, []byte("}"))
	type field struct {
		name string
		size int
		use  func(func([]byte) error) error
	}
	seed := func(key ed25519.PrivateKey) func(func([]byte) error) error {
		return func(with func([]byte) error) error { return with(key[:ed25519.SeedSize]) }
	}
	fields := []field{
		{"node_key", ed25519.SeedSize, seed(r.NodeKey)}, {"join_key", ed25519.SeedSize, seed(r.JoinKey)},
		{"nuk", r.NUK.Len(), r.NUK.Use}, {"cuk", r.CUK.Len(), r.CUK.Use}, {"data_key", r.Data.Len(), r.Data.Use},
	}
	size := len(head) + len("}\n")
	for _, f := range fields {
		size += len(`,"":""`) + len(f.name) + base64.StdEncoding.EncodedLen(f.size)
	}
	padded := 1024
	for padded-tag < size {
		padded *= 2
	}
	return keys.Fill(padded-tag, func(out []byte) error {
		// out has its final size, so append never moves it.
		text := append(out[:0], head...)
		for _, f := range fields {
			err := f.use(func(secret []byte) error {
				if len(secret) != f.size {
					return keys.ErrDestroyed
				}
				text = append(append(append(text, `,"`...), f.name...), `":"`...)
				text = append(base64.StdEncoding.AppendEncode(text, secret), '"')
				return nil
			})
			if err != nil {
				return err
			}
		}
		text = append(text, '}')
		for len(text) < len(out)-1 {
			text = append(text, ' ')
		}
		_ = append(text, '\n')
		return nil
	})
}

// Parse parses the decrypted content of a recovery file, and zeroes it. ErrNotRecovered if it is anything else, *storage.VersionError if another
// version wrote it.
func Parse(recovered []byte) (*Recovered, error) {
	defer clear(recovered)
	var head struct {
		Version *int `json:"version"`
	}
	if len(recovered) > maxFile || json.Unmarshal(recovered, &head) != nil || head.Version == nil {
		return nil, ErrNotRecovered
	}
	if *head.Version != version {
		return nil, fmt.Errorf("recovery: another version of reeved wrote the recovery file: %w", &storage.VersionError{Found: *head.Version, Known: version})
	}
	var c content
	defer c.clear()
	if err := json.Unmarshal(recovered, &c); err != nil {
		return nil, ErrNotRecovered
	}
	if len(c.NodeKey) != ed25519.SeedSize || len(c.JoinKey) != ed25519.SeedSize {
		return nil, ErrNotRecovered
	}
	r := &Recovered{
		ClusterID: c.ClusterID, Owner: c.Owner, Kind: c.Kind, Location: c.Location, Sealer: c.Sealer, Registration: c.Registration, Recipient: c.Recipient,
		NodeKey: ed25519.NewKeyFromSeed(c.NodeKey), JoinKey: ed25519.NewKeyFromSeed(c.JoinKey),
	}
	for _, f := range []struct {
		to   **keys.Secret
		from []byte
	}{{&r.NUK, c.NUK}, {&r.CUK, c.CUK}, {&r.Data, c.Data}} {
		if len(f.from) == 0 {
			continue
		}
		secret, err := keys.SecretOf(f.from)
		if err != nil {
			r.Destroy()
			return nil, err
		}
		*f.to = secret
	}
	if err := r.check(); err != nil {
		r.Destroy()
		return nil, fmt.Errorf("%w (%w)", ErrNotRecovered, err)
	}
	return r, nil
}

// check says what is missing.
func (r *Recovered) check() error {
	switch {
	case r.ClusterID == "" || r.Kind == "":
		return errors.New("the cluster or the kind of the volume is missing")
	case len(r.NodeKey) != ed25519.PrivateKeySize || len(r.JoinKey) != ed25519.PrivateKeySize || len(r.Owner) != 0 && len(r.Owner) != ed25519.PublicKeySize:
		return errors.New("the node key, the join key or the owner's key is missing")
	case r.Recipient != "" && Recipient(r.Recipient) != nil:
		return errors.New("its recipient is not a recovery key")
	case r.Registration != nil && len(r.Registration.CAPins) == 0:
		return errors.New("the CA pin of the node's cluster is missing")
	case r.NUK.Len() != keys.Size || r.CUK.Len() != keys.Size || r.Data.Len() == 0:
		return errors.New("a key of the volume is missing")
	}
	return nil
}
