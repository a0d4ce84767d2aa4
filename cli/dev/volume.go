package dev

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/setup"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// The kinds of volume that a dev directory can have.
const (
	Plain   = "plain"
	Fscrypt = "fscrypt"
)

// imageSize is how large the file system of an encrypted volume is made, in bytes; its file takes only the room that is used.
const imageSize = 1 << 30

// RecoveryKey is the name of the file with the recovery key of an encrypted volume.
const RecoveryKey = "recovery.key"

// RecoveryKeyFile is the file with the recovery key. It is there if the volume is encrypted, unless somebody has taken it away.
func (d *Directory) RecoveryKeyFile() string { return filepath.Join(d.State, RecoveryKey) }

// CheckVolume refuses a kind of volume that there is not, or that a user cannot have. Empty is plain.
func CheckVolume(kind string, uid int) error {
	switch kind {
	case "", Plain:
		return nil
	case Fscrypt:
		if uid == 0 {
			return nil
		}
		return fault.New(fault.Refused, "an encrypted volume needs root: the node mounts an image, and gives the kernel its key",
			"Run the command as root, or leave --volume out: the volume is then plain, which is NOT ENCRYPTED.")
	default:
		return fault.New(fault.Usage, "--volume "+kind+" is no kind of volume for a dev directory", "Give plain or fscrypt; `reeve init` knows luks as well.")
	}
}

// volumeOf is the kind of the volume that parameters name.
func volumeOf(parameters *nodev1.Parameters) string {
	switch parameters.GetVolume().GetKind().(type) {
	case *nodev1.Volume_Fscrypt:
		return Fscrypt
	case *nodev1.Volume_Luks:
		return "luks"
	default:
		return Plain
	}
}

// encrypt gives a node an encrypted volume, whose recovery key it makes in a file, unless it is there from an earlier try.
func encrypt(node *setup.Node, keyFile string) error {
	recipient, err := recovery.Create(keyFile, time.Now())
	if _, statErr := os.Lstat(keyFile); err != nil && statErr == nil {
		// What was begun before is completed.
		var key *recovery.Key
		if key, err = recovery.ReadFile(keyFile); err == nil {
			recipient = key.Recipient
		}
	}
	if err != nil {
		return err
	}
	// An image works whatever the file system below the directory is: below the system directory, where only root comes.
	node.Volume = &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{
		Path: filepath.Join(node.System, "volume.img"), SizeBytes: new(int64(imageSize)),
	}}}}
	node.RecoveryRecipient = recipient
	return nil
}

// unlock opens the volume of the directory's node with the recovery key that lies in it.
func (d *Directory) unlock(ctx context.Context, api nodev1.NodeServiceClient) ([]string, error) {
	recovery.Guard()
	key, err := recovery.ReadFile(d.RecoveryKeyFile())
	if err != nil {
		return nil, err
	}
	return key.Unlock(ctx, api, "the node in "+d.Path, d.RecoveryKeyFile())
}

// hasRecoveryKey says whether the recovery key lies in the directory.
func (d *Directory) hasRecoveryKey() bool {
	_, err := os.Stat(d.RecoveryKeyFile())
	return !errors.Is(err, fs.ErrNotExist)
}

// unlock opens a volume that waits for the recovery key, once, if the directory has it.
func (f *Follower) unlock(ctx context.Context) {
	if f.unlocks || !recovery.Wanted(f.last.GetStorage()) {
		return
	}
	f.unlocks = true
	if !f.directory.hasRecoveryKey() {
		f.say("The volume waits for its recovery key, and " + f.directory.RecoveryKeyFile() + " is not there. In another terminal: `reeve node unlock --dir " +
			f.directory.Path + " --recovery-key FILE`.")
		return
	}
	f.say("Unlocking the volume with " + f.directory.RecoveryKeyFile() + ", which lies beside it: that is for trying out, and protects nothing.")
	f.wait.Go(func() {
		notes, err := f.directory.unlock(ctx, f.api)
		f.unlocked <- unlocking{notes, err}
	})
}

// unlocking is how unlocking a volume went.
type unlocking struct {
	notes []string
	err   error
}
