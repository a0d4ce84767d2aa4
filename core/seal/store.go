package seal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// mode is that of the file.
const mode = 0o400

// Store is the sealed configuration on disk. It keeps the configuration key in memory once it has it, so that the sealer is asked once in a start.
type Store struct {
	path   string
	sealer Sealer

	mu sync.Mutex
	// key is the configuration key, sealed its sealed form; nil before the configuration is loaded or saved.
	key    *keys.Secret
	sealed json.RawMessage
	// phase is the one in the file.
	phase Phase
}

// NewStore returns the store of the configuration in the file at path.
func NewStore(path string, sealer Sealer) *Store {
	return &Store{path: path, sealer: sealer}
}

// Head returns what can be read without the sealer, or nil if there is no file. *UnreadableError if there is one that is damaged.
func (s *Store) Head() (*Head, error) {
	d, err := read(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Head{
		Sealer: d.Open.Sealer, ClusterID: d.Open.ClusterID, NodeID: d.Open.NodeID, Owner: d.Open.Owner, RecoveryRecipient: d.Open.RecoveryRecipient,
		VolumeKind: d.Open.VolumeKind, Location: d.Open.Location, Phase: d.Open.Phase, CUKSources: d.Open.CUKSources,
		StoreFormed: d.storeFormed(), Registration: d.Open.Registration,
	}, nil
}

// Load returns the configuration, or nil if there is none. *UnreadableError if there is one that cannot be opened. Its keys belong to the caller.
func (s *Store) Load(ctx context.Context) (*Configuration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := read(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d.Open.Sealer != s.sealer.Name() {
		return nil, &UnreadableError{Path: s.path, Err: &OtherSealerError{Sealed: d.Open.Sealer, Wanted: s.sealer.Name()}}
	}
	key, err := s.sealer.Unseal(ctx, d.Key)
	if err != nil {
		return nil, &UnreadableError{Path: s.path, Err: fmt.Errorf("its key cannot be unsealed: %w", err)}
	}
	c, err := d.decrypt(key)
	if err != nil {
		key.Destroy()
		return nil, &UnreadableError{Path: s.path, Err: err}
	}
	s.take(key, d.Key, c.Phase)
	return c, nil
}

// Save replaces the configuration, atomically and durably. The first Save of a new node makes the configuration key and seals it; later ones need no sealer. It
// never replaces a configuration that was not loaded, nor does it go back to an earlier phase.
func (s *Store) Save(ctx context.Context, c *Configuration) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("seal: the configuration is not kept in %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("seal: %s is there and was not loaded: it is not replaced", s.path)
		}
		key, sealed, err := s.newKey(ctx)
		if err != nil {
			return err
		}
		s.take(key, sealed, "")
	}
	if c.Phase.Before(s.phase) {
		return fmt.Errorf("seal: the node is in the phase %s, and does not go back to %s", s.phase, c.Phase)
	}
	if err := s.write(c, s.key, s.sealed); err != nil {
		return err
	}
	s.phase = c.Phase
	return nil
}

// Reseal has the configuration key sealed anew by a function of the same sealer. The configuration must have been loaded or saved.
func (s *Store) Reseal(ctx context.Context, seal func(context.Context, *keys.Secret) (json.RawMessage, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		return fmt.Errorf("seal: %s was not loaded: it cannot be sealed anew before the node is unlocked", s.path)
	}
	d, err := read(s.path)
	if err != nil {
		return err
	}
	// What is sealed anew must be what the file needs.
	c, err := d.decrypt(s.key)
	if err != nil {
		return &UnreadableError{Path: s.path, Err: err}
	}
	c.Destroy()
	sealed, err := seal(ctx, s.key)
	if err != nil {
		return fmt.Errorf("seal: seal the key of %s anew by %q: %w", s.path, s.sealer.Name(), err)
	}
	d.Key = sealed
	if err := storage.WriteDocument(s.path, d.version, d, mode); err != nil {
		return err
	}
	s.sealed = sealed
	return nil
}

// Replace writes a configuration, which is what a recovery has given back, with a new configuration key over whatever is there. A file that this node could
// not open is kept, under its name and ".unreadable". Its phase must be one in which the volume was made: what was recovered is never formatted.
func (s *Store) Replace(ctx context.Context, c *Configuration) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("seal: the configuration is not kept in %s: %w", s.path, err)
	}
	if c.Phase.Before(Registering) {
		return fmt.Errorf("seal: the configuration in %s is replaced by that of a member, or of a node that registers, and not by one in the phase %s", s.path, c.Phase)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The sealer may fail, and nothing has changed then.
	key, sealed, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	if err := s.keepUnreadable(); err != nil {
		key.Destroy()
		return err
	}
	if err := s.write(c, key, sealed); err != nil {
		key.Destroy()
		return err
	}
	s.take(key, sealed, c.Phase)
	return nil
}

// Forget destroys the configuration key.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(nil, nil, "")
}

// take puts a key in the place of the one in memory.
func (s *Store) take(key *keys.Secret, sealed json.RawMessage, phase Phase) {
	s.key.Destroy()
	s.key, s.sealed, s.phase = key, sealed, phase
}

func (s *Store) newKey(ctx context.Context) (*keys.Secret, json.RawMessage, error) {
	key, err := keys.NewSecret(keys.Size)
	if err != nil {
		return nil, nil, err
	}
	sealed, err := s.sealer.Seal(ctx, key)
	if err != nil {
		key.Destroy()
		return nil, nil, fmt.Errorf("seal: seal the key of %s by %q: %w", s.path, s.sealer.Name(), err)
	}
	return key, sealed, nil
}

func (s *Store) write(c *Configuration, key *keys.Secret, sealed json.RawMessage) error {
	d, err := encrypt(c, s.sealer.Name(), key, sealed)
	if err != nil {
		return fmt.Errorf("seal: encrypt the configuration for %s: %w", s.path, err)
	}
	return storage.WriteDocument(s.path, version, d, mode)
}

// keepUnreadable gives what is there another name besides the one that it has, so that at no time there is no file.
func (s *Store) keepUnreadable() error {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("seal: %s is no file (%s), and is not replaced: move it away", s.path, info.Mode())
	}
	if d, err := read(s.path); err == nil && s.key != nil {
		if c, err := d.decrypt(s.key); err == nil {
			// An earlier Replace has written it, and what it kept is worth more.
			c.Destroy()
			return nil
		}
	}
	kept := s.path + ".unreadable"
	if err := os.Remove(kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Link(s.path, kept); err == nil {
		return storage.SyncDirectory(filepath.Dir(kept))
	}
	// A file system without links.
	content, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("seal: %s is not replaced, since what is there cannot be kept: %w: move it to another name by hand", s.path, err)
	}
	return storage.WriteFile(kept, content, mode)
}
