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

// mode is the file's mode.
const mode = 0o400

// Store is the sealed configuration on disk. It keeps the configuration key in memory, so that a start asks the sealer once.
type Store struct {
	path   string
	sealer Sealer

	mu sync.Mutex
	// key is the configuration key, sealed its sealed form; nil before Load or Save.
	key    *keys.Secret
	sealed json.RawMessage
	// phase is the one in the file.
	phase Phase
}

// NewStore returns the store of the configuration in the file at path.
func NewStore(path string, sealer Sealer) *Store {
	return &Store{path: path, sealer: sealer}
}

// Head returns the public part, or nil if there is no file. *UnreadableError if the file is damaged.
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
		StoreFormed: d.storeFormed(), Registration: d.Open.Registration, Restored: d.Open.Restored,
	}, nil
}

// Load returns the configuration, or nil if there is none. *UnreadableError if it cannot be opened. The caller owns its keys.
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
		return nil, &UnreadableError{Path: s.path, Err: fmt.Errorf("cannot unseal its key: %w", err)}
	}
	c, err := d.decrypt(key)
	if err != nil {
		key.Destroy()
		return nil, &UnreadableError{Path: s.path, Err: err}
	}
	s.take(key, d.Key, c.Phase)
	return c, nil
}

// Save replaces the configuration atomically and durably. A new node's first Save makes and seals the configuration key; later ones need no sealer.
// Save never replaces a configuration that was not loaded, and never returns to an earlier phase.
func (s *Store) Save(ctx context.Context, c *Configuration) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("seal: the configuration is not saved to %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("seal: %s exists and was not loaded: it is not replaced", s.path)
		}
		key, sealed, err := s.newKey(ctx)
		if err != nil {
			return err
		}
		s.take(key, sealed, "")
	}
	if c.Phase.Before(s.phase) {
		return fmt.Errorf("seal: the node is in the phase %s and cannot go back to %s", s.phase, c.Phase)
	}
	if err := s.write(c, s.key, s.sealed); err != nil {
		return err
	}
	s.phase = c.Phase
	return nil
}

// Reseal seals the configuration key anew with a function of the same sealer. The configuration must be loaded or saved before.
func (s *Store) Reseal(ctx context.Context, seal func(context.Context, *keys.Secret) (json.RawMessage, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		return fmt.Errorf("seal: %s is not loaded: unlock the node before you reseal it", s.path)
	}
	d, err := read(s.path)
	if err != nil {
		return err
	}
	// Verify that this key opens the file before sealing it.
	c, err := d.decrypt(s.key)
	if err != nil {
		return &UnreadableError{Path: s.path, Err: err}
	}
	c.Destroy()
	sealed, err := seal(ctx, s.key)
	if err != nil {
		return fmt.Errorf("seal: reseal the key of %s with %q: %w", s.path, s.sealer.Name(), err)
	}
	d.Key = sealed
	if err := storage.WriteDocument(s.path, d.version, d, mode); err != nil {
		return err
	}
	s.sealed = sealed
	return nil
}

// Replace writes a recovered configuration with a new configuration key over whatever is there. It keeps an unreadable file under its name plus
// ".unreadable". The phase must be one in which the volume exists, so that a recovered volume is never formatted.
func (s *Store) Replace(ctx context.Context, c *Configuration) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("seal: the configuration is not saved to %s: %w", s.path, err)
	}
	if c.Phase.Before(Registering) {
		return fmt.Errorf("seal: a configuration in the phase %[2]s cannot replace %[1]s: it must be a member's or a registering node's", s.path, c.Phase)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The sealer comes first: if it fails, nothing has changed.
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

// take replaces the key in memory.
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
		return nil, nil, fmt.Errorf("seal: seal the key of %s with %q: %w", s.path, s.sealer.Name(), err)
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

// keepUnreadable gives the file a second name, so that there is a file at every moment.
func (s *Store) keepUnreadable() error {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("seal: %s is not a regular file (%s) and is not replaced: move it away", s.path, info.Mode())
	}
	if d, err := read(s.path); err == nil && s.key != nil {
		if c, err := d.decrypt(s.key); err == nil {
			// An earlier Replace wrote it. What that one kept is worth more.
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
	// The file system has no hard links.
	content, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("seal: %s is not replaced because it cannot be copied: %w: rename it by hand", s.path, err)
	}
	return storage.WriteFile(kept, content, mode)
}
