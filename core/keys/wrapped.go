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

// version is the version of the format of the file of the wrapped data key.
const version = 1

// wrappingKey is the size of the key that wraps (KEK).
const wrappingKey = 32

// ErrOtherKeys says that the data key is not wrapped by these halves.
var ErrOtherKeys = errors.New("keys: the key of the volume is wrapped by other keys than these")

// UnreadableError says that the file of the wrapped data key cannot be read, or is missing where there must be one.
type UnreadableError struct {
	// Path is the file.
	Path string
	// Err is why.
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("keys: the wrapped key of the volume, %s, cannot be read (%v): restore the file from a backup of this node, or open the volume by the owner's recovery key (`reeve node unlock`), which writes it anew", e.Path, e.Err)
}

// Unwrap returns why the file cannot be read.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Halves are the two keys that together open a volume.
type Halves struct{ NUK, CUK *Secret }

// Volume is which volume a data key is for: it is wrapped for this one only.
type Volume struct{ ClusterID, NodeID, Kind string }

// wrapping is the data key, wrapped by two halves.
type wrapping struct {
	// NUK and CUK are the IDs of the halves.
	NUK string `json:"nuk"`
	CUK string `json:"cuk"`
	// Key is the data key, encrypted by what is derived from both.
	Key []byte `json:"key"`
}

// file is the content of the file.
type file struct {
	Wrapped []wrapping `json:"wrapped"`
}

// Store is the file of the wrapped data key. It holds one wrapping, and two while a half is being rotated.
type Store struct{ path string }

// NewStore returns the store in the file at path.
func NewStore(path string) *Store { return &Store{path: path} }

// Exists reports whether there is a file, readable or not.
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

// Add wraps the data key by two halves, beside what is there. Wrapped by the same halves already, it stays as it is; it is an error if they wrap another key.
// *UnreadableError if there is a file that cannot be read, which is left as it is.
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
		return fmt.Errorf("keys: NUK %s and CUK %s wrap another data key in %s already: another data key needs another NUK or CUK", halves.NUK.ID(), halves.CUK.ID(), s.path)
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

// Replace makes the wrapping by these halves the only one, whatever is there: what follows a recovery. A file that cannot be read is lost, so the data key must
// have proved that it opens the volume.
func (s *Store) Replace(volume Volume, halves Halves, data *Secret) error {
	key, err := wrap(volume, halves, data)
	if err != nil {
		return err
	}
	return s.write(file{Wrapped: []wrapping{{NUK: halves.NUK.ID(), CUK: halves.CUK.ID(), Key: key}}})
}

// Open returns the data key. ErrOtherKeys if it is not wrapped by these halves; *UnreadableError if the file is damaged, missing or newer.
func (s *Store) Open(volume Volume, halves Halves) (*Secret, error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	return s.unwrap(f, volume, halves)
}

// Check says whether the file can be read, without any key: *UnreadableError if it is damaged, missing or newer.
func (s *Store) Check() error {
	_, err := s.read()
	return err
}

// Keep removes all wrappings but the one by these halves, which must be there.
func (s *Store) Keep(volume Volume, halves Halves) error {
	f, err := s.read()
	if err != nil {
		return err
	}
	// It must open the volume, since nothing else will.
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
		return nil, &UnreadableError{Path: s.path, Err: fmt.Errorf("what it has for NUK %s and CUK %s does not open for the %s volume of node %s of cluster %s", nuk, cuk, volume.Kind, volume.NodeID, volume.ClusterID)}
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

// derive makes the key that wraps (KEK) out of the two halves.
func derive(volume Volume, halves Halves) (*Secret, error) {
	both, err := Fill(2*Size, func(content []byte) error {
		for i, half := range []*Secret{halves.NUK, halves.CUK} {
			err := half.Use(func(key []byte) error {
				if len(key) != Size {
					return fmt.Errorf("keys: a half of %d bytes, where it has %d", len(key), Size)
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
			return fmt.Errorf("keys: derive the key that wraps: %w", err)
		}
		derived, err = SecretOf(key)
		return err
	})
	return derived, err
}

// associated is what a wrapping holds for, besides the key.
func associated(volume Volume, halves Halves) []byte {
	return fields(fmt.Sprintf("reeve wrapped key v%d", version), volume.ClusterID, volume.NodeID, volume.Kind, halves.NUK.ID(), halves.CUK.ID())
}

// fields writes texts one after the other, each with its length, so that no two lists give the same bytes.
func fields(texts ...string) []byte {
	var out []byte
	for _, text := range texts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
		out = append(out, text...)
	}
	return out
}
