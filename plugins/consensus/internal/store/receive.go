package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// ErrSnapshot says that what was received is not the database that its manifest describes.
var ErrSnapshot = errors.New("the snapshot cannot be used")

// receivedDirectory is where the snapshot lies until the member is made of it: its manifest, and its database with its SHA-256 behind it.
func receivedDirectory(directory string) string { return filepath.Join(directory, "restore") }

func receivedManifest(directory string) string {
	return filepath.Join(receivedDirectory(directory), "manifest.json")
}

func receivedDatabase(directory string) string {
	return filepath.Join(receivedDirectory(directory), "database")
}

// Receive keeps a snapshot in the directory of a member that is to be made of it. from has its database, and then the SHA-256 of the database. It returns nil, and reads nothing, if the directory
// has this snapshot, or a member that was made.
func Receive(ctx context.Context, config Config, line []byte, from io.Reader) error {
	manifest, err := snapshot.ParseManifest(line)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	locked, err := lock(config.Directory)
	if err != nil {
		return err
	}
	defer locked.Close()
	if content, err := readMarker(config.Directory); err == nil {
		if found, err := parseMarker(content); err == nil && found.Phase == complete {
			return nil
		}
	}
	if kept, err := os.ReadFile(receivedManifest(config.Directory)); err == nil && bytes.Equal(kept, line) {
		if _, err := os.Stat(receivedDatabase(config.Directory)); err == nil {
			return nil
		}
	}
	if err := removeReceived(config.Directory); err != nil {
		return err
	}
	if err := fits(config, manifest.DatabaseSize); err != nil {
		return err
	}
	if err := os.Mkdir(receivedDirectory(config.Directory), 0o700); err != nil {
		return fmt.Errorf("make the directory for the snapshot: %w", err)
	}
	if err := renameio.WriteFile(receivedManifest(config.Directory), line, 0o600, renameio.WithTempDir(receivedDirectory(config.Directory))); err != nil {
		return fmt.Errorf("keep the manifest of the snapshot: %w", err)
	}
	err = checkpoint.Around(steps.ReceiveSnapshot, func() error {
		return receiveDatabase(ctx, receivedDatabase(config.Directory), manifest, from)
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: the node's volume is full: %w; make room on it", ErrUnfit, err)
	}
	return err
}

// fits refuses a database that the store could not hold, or for which there is no room.
func fits(config Config, size int64) error {
	quota := config.Quota
	if quota == 0 {
		quota = DefaultQuota
	}
	if size > quota {
		return fmt.Errorf("%w: the snapshot's database has %s, and the store may have %s: set quotaBytes in the configuration of this role to more", ErrUnfit, spell(size), spell(quota))
	}
	free, all, err := freeSpace(config.Directory)
	if err != nil {
		return fmt.Errorf("look how much room there is: %w", err)
	}
	return hasRoom(size, free, all)
}

// hasRoom refuses a database for which a volume has too little room: it lies on it twice until the member is made, beside the member's log.
func hasRoom(size, free, all int64) error {
	if needed := 2*size + logRoom + min(all/marginPart, mostMargin); free < needed {
		return fmt.Errorf("%w: its volume has %s free, and %s are needed: make room on it", ErrUnfit, spell(free), spell(needed))
	}
	return nil
}

// receiveDatabase writes what comes to a file, which gets its name when all of it is there and is what the manifest says.
func receiveDatabase(ctx context.Context, path string, manifest *snapshot.Manifest, from io.Reader) (err error) {
	file, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("make the file for the database: %w", err)
	}
	defer func() { err = errors.Join(err, file.Cleanup()) }()
	hashed := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, hashed), io.LimitReader(from, manifest.DatabaseSize))
	if err != nil {
		return fmt.Errorf("receive the database: %w", err)
	}
	sum := hashed.Sum(nil)
	behind := make([]byte, sha256.Size)
	_, short := io.ReadFull(from, behind)
	switch more, err := from.Read(make([]byte, 1)); {
	case ctx.Err() != nil:
		return ctx.Err()
	case size < manifest.DatabaseSize || short != nil:
		return fmt.Errorf("%w: it is cut off: %d bytes of a database of %d came", ErrSnapshot, size, manifest.DatabaseSize)
	case more > 0 || !errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it goes on behind its database (%v)", ErrSnapshot, err)
	case fmt.Sprintf("%x", sum) != manifest.DatabaseSHA256 || !bytes.Equal(behind, sum):
		return fmt.Errorf("%w: its database has the SHA-256 %x, and not that of its manifest", ErrSnapshot, sum)
	}
	if _, err := file.Write(behind); err != nil {
		return fmt.Errorf("keep the database: %w", err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("keep the database: %w", err)
	}
	return syncDirectory(filepath.Dir(path))
}

// received returns the manifest of the snapshot that the directory has.
func received(directory string, plan Plan) (*snapshot.Manifest, error) {
	line, err := os.ReadFile(receivedManifest(directory))
	if err == nil {
		_, err = os.Stat(receivedDatabase(directory))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("the store of cluster %s is to be restored, and no snapshot was received: run `reeved restore` again", plan.ClusterID)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the snapshot: %w", err)
	}
	manifest, err := snapshot.ParseManifest(line)
	if err != nil {
		return nil, err
	}
	if manifest.ClusterID != plan.ClusterID {
		return nil, foreign("the snapshot is of cluster %s, not of cluster %s: restore that one, or a snapshot of this one", manifest.ClusterID, plan.ClusterID)
	}
	return manifest, nil
}

func removeReceived(directory string) error {
	if err := os.RemoveAll(receivedDirectory(directory)); err != nil {
		return fmt.Errorf("remove the snapshot of which the member was made: %w", err)
	}
	return nil
}
