package volume

import (
	"context"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// Kind is a way to keep a volume. Every call may be stopped anywhere, and is made again from the beginning then.
type Kind interface {
	// Describe says what it is; it never fails and touches nothing.
	Describe() Description
	// State finds out what is there. An error says what keeps it from being found out, or that what is there is nothing of this node's.
	State(ctx context.Context) (State, error)
	// Format makes an empty volume that the key opens, and leaves it closed. *NotEmptyError if anything is there that is not the rest of an interrupted Format
	// of this very volume.
	Format(ctx context.Context, key *keys.Secret) error
	// Open makes the volume usable at the data directory. It does nothing if it is open. ErrWrongKey if it is another volume's key.
	Open(ctx context.Context, key *keys.Secret) error
	// Close makes it unusable without the key, and proves it. It does nothing if it is closed. *BusyError if processes have files of it open: it is then still
	// readable, and Close may be tried again.
	Close(ctx context.Context) error
	// Rotate puts another key in the place of the one that opens it, without rewriting what is on it. ErrFixedKey if the kind cannot, ErrWrongKey if it is none
	// of its keys that is to be replaced. A key that is put in its own place is proved to be the volume's, and nothing changes.
	Rotate(ctx context.Context, old, next *keys.Secret) error
}

// Description is what a volume is.
type Description struct {
	Kind storage.VolumeKind
	// Encrypted says whether what is on it can be read without the key.
	Encrypted bool
	// Location is where it is: a device, the file of an image, a directory.
	Location string
	// KeySize is the size of its key in bytes; 0: it needs none.
	KeySize int
	// Clear is a directory of the same file system that is outside of the encryption, for what is no secret and costs time to decrypt. Only root can enter it, and
	// it is there while the volume is open. Empty: there is none.
	Clear string
}

// State is what there is of a volume.
type State int

// What there may be of a volume.
const (
	// Absent: nothing is there, or the rest of an interrupted Format. Only then may it be formatted.
	Absent State = iota
	// Closed: it is there and cannot be read.
	Closed
	// Open: it is there and in use at the data directory, by an earlier core say.
	Open
)
