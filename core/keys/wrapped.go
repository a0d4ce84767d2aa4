package keys

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/reeveproject/reeve/core/storage"
)

// version is the format version of the wrapped data key's file.
const version = 1

// wrappingKey is the size of the wrapping key (KEK) in bytes.
const wrappingKey = 32

// ErrOtherKeys says that other halves wrap the data key.
var ErrOtherKeys = errors.New("keys: other keys than these wrap the volume's key")

// UnreadableError says that the wrapped data key cannot be read, or is missing where it must exist.
type UnreadableError struct {
	// Path is the file.
	Path string
	// Err is the reason.
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("keys: cannot read the volume's wrapped key %s (%v): restore the file from a backup of this node, or open the volume with the owner's recovery key (`reeve node unlock`), which writes it anew", e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Halves are the two keys that together open a volume.
type Halves struct{ NUK, CUK *Secret }

// Volume identifies the volume that a data key is wrapped for. It opens no other.
type Volume struct{ ClusterID, NodeID, Kind string }

// wrapping is the data key, wrapped by two halves.
type wrapping struct {
	// NUK and CUK are the IDs of the halves.
	NUK string `json:"nuk"`
	CUK string `json:"cuk"`
	// Key is the data key, encrypted with the key derived from both.
	Key []byte `json:"key"`
}

// file is the content of the file.
type file struct {
	Wrapped []wrapping `json:"wrapped"`
}

// Store is the file of the wrapped data key. It holds one wrapping, or two while a half is being rotated.
type Store struct{ path string }

// NewStore returns the store in the file at path.
func NewStore(path string) *Store { return &Store{path: path} }

// Exists reports whether the file exists, readable or not.
func (s *Store) Exists() (bool, error) {
	_, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keys: %w", err)
	}
	return true, nil
}

// Add adds a wrapping of the data key by the halves. It does nothing if they already wrap it, and fails if they wrap another key. *UnreadableError if
// the file cannot be read; it is left unchanged.
func (s *Store) Add(volume Volume, halves Halves, data *Secret) error {
	exists, err := s.Exists()
	if err != nil {
		return err
	}
	var f file
	if exists {
		if f, err = s.read(); err != nil {
			return err
		}
	}
	switch have, err := s.unwrap(f, volume, halves); {
	case err == nil:
		defer have.Destroy()
		if have.Equal(data) {
			return nil
		}
		return fmt.Errorf("keys: NUK %s and CUK %s already wrap another data key in %s: make another NUK or CUK for this one", halves.NUK.ID(), halves.CUK.ID(), s.path)
	case !errors.Is(err, ErrOtherKeys):
		return err
	}
	key, err := wrap(volume, halves, data)
	if err != nil {
		return err
	}
	f.Wrapped = append(f.Wrapped, wrapping{NUK: halves.NUK.ID(), CUK: halves.CUK.ID(), Key: key})
	return s.write(f)
}

// Replace makes this wrapping the only one, after a recovery. An unreadable file is lost, so the caller must have opened the volume with data before.
func (s *Store) Replace(volume Volume, halves Halves, data *Secret) error {
	key, err := wrap(volume, halves, data)
	if err != nil {
		return err
	}
	return s.write(file{Wrapped: []wrapping{{NUK: halves.NUK.ID(), CUK: halves.CUK.ID(), Key: key}}})
}

// Open returns the data key. ErrOtherKeys if other halves wrap it; *UnreadableError if the file is damaged, missing or newer.
func (s *Store) Open(volume Volume, halves Halves) (*Secret, error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	return s.unwrap(f, volume, halves)
}

// Check reads the file without any key. *UnreadableError if it is damaged, missing or newer.
func (s *Store) Check() error {
	_, err := s.read()
	return err
}

// Keep removes all wrappings but the one by these halves, which must exist.
func (s *Store) Keep(volume Volume, halves Halves) error {
	f, err := s.read()
	if err != nil {
		return err
	}
	// Prove that this wrapping opens, since it will be the only one.
	data, err := s.unwrap(f, volume, halves)
	if err != nil {
		return err
	}
	data.Destroy()
	if len(f.Wrapped) == 1 {
		return nil
	}
	f.Wrapped = slices.DeleteFunc(f.Wrapped, func(w wrapping) bool { return w.NUK != halves.NUK.ID() || w.CUK != halves.CUK.ID() })
	return s.write(f)
}

func (s *Store) read() (file, error) {
	var f file
	if err := storage.ReadDocument(s.path, version, &f); err != nil {
		return file{}, &UnreadableError{Path: s.path, Err: err}
	}
	return f, nil
}

func (s *Store) write(f file) error { return storage.WriteDocument(s.path, version, f, 0o400) }

func (s *Store) unwrap(f file, volume Volume, halves Halves) (*Secret, error) {
	nuk, cuk := halves.NUK.ID(), halves.CUK.ID()
	if nuk == "" || cuk == "" {
		return nil, ErrDestroyed
	}
	at := slices.IndexFunc(f.Wrapped, func(w wrapping) bool { return w.NUK == nuk && w.CUK == cuk })
	if at < 0 {
		return nil, ErrOtherKeys
	}
	key, err := derive(volume, halves)
	if err != nil {
		return nil, err
	}
	defer key.Destroy()
	data, err := Decrypt(key, f.Wrapped[at].Key, associated(volume, halves))
	if errors.Is(err, ErrDamaged) {
		return nil, &UnreadableError{Path: s.path, Err: fmt.Errorf("its entry for NUK %s and CUK %s does not open the %s volume of node %s of cluster %s", nuk, cuk, volume.Kind, volume.NodeID, volume.ClusterID)}
	}
	return data, err
}

func wrap(volume Volume, halves Halves, data *Secret) ([]byte, error) {
	key, err := derive(volume, halves)
	if err != nil {
		return nil, err
	}
	defer key.Destroy()
	return Encrypt(key, data, associated(volume, halves))
}

// derive derives the wrapping key (KEK) from the two halves.
func derive(volume Volume, halves Halves) (*Secret, error) {
	both, err := Fill(2*Size, func(content []byte) error {
		for i, half := range []*Secret{halves.NUK, halves.CUK} {
			err := half.Use(func(key []byte) error {
				if len(key) != Size {
					return fmt.Errorf("keys: a half has %d bytes instead of %d", len(key), Size)
				}
				copy(content[i*Size:], key)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer both.Destroy()
	salt := sha256.Sum256(fields("reeve volume key v1", volume.ClusterID, volume.NodeID))
	var derived *Secret
	err = both.Use(func(content []byte) error {
		key, err := hkdf.Key(sha256.New, content, salt[:], volume.Kind, wrappingKey)
		if err != nil {
			return fmt.Errorf("keys: derive the wrapping key: %w", err)
		}
		derived, err = SecretOf(key)
		return err
	})
	return derived, err
}

// associated is the data that a wrapping is bound to.
func associated(volume Volume, halves Halves) []byte {
	return fields(fmt.Sprintf("reeve wrapped key v%d", version), volume.ClusterID, volume.NodeID, volume.Kind, halves.NUK.ID(), halves.CUK.ID())
}

// fields joins texts with their lengths, so that different lists give different bytes.
func fields(texts ...string) []byte {
	var out []byte
	for _, text := range texts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
		out = append(out, text...)
	}
	return out
}
