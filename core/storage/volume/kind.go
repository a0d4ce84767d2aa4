package volume

import (
	"context"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// Kind is a way to keep a volume. Every call may be interrupted anywhere and is then repeated from the beginning.
type Kind interface {
	// Describe says what the volume is. It never fails and touches nothing.
	Describe() Description
	// State says what is at the location. It fails if that is unknown or not this node's.
	State(ctx context.Context) (State, error)
	// Format makes an empty volume for the key and leaves it closed. *NotEmptyError if the location holds anything but the rest of an interrupted
	// Format of this volume.
	Format(ctx context.Context, key *keys.Secret) error
	// Open makes the volume usable at the data directory. It does nothing if the volume is open. ErrWrongKey if the key is another volume's.
	Open(ctx context.Context, key *keys.Secret) error
	// Close makes the volume unreadable without the key, and verifies that. It does nothing if it is closed. *BusyError if processes have its files
	// open; the volume then stays readable, and the caller may try again.
	Close(ctx context.Context) error
	// Rotate replaces a key without rewriting the data. ErrFixedKey if the kind cannot, ErrWrongKey if old is not one of its keys. If old equals
	// next, it only checks the key.
	Rotate(ctx context.Context, old, next *keys.Secret) error
}

// Checker is a Kind that can say what Format would refuse.
type Checker interface {
	// CheckFormat returns everything that Format would refuse, as far as that can be known without changing anything.
	CheckFormat() []error
}

// Description says what a volume is.
type Description struct {
	Kind storage.VolumeKind
	// Encrypted says whether the data is unreadable without the key.
	Encrypted bool
	// Location is a device, an image file or a directory.
	Location string
	// KeySize is the key's size in bytes; 0 if it needs none.
	KeySize int
	// Clear is a directory of the same file system outside the encryption, for data that is no secret and would cost time to decrypt. Only root can
	// enter it. It exists while the volume is open. Empty if there is none.
	Clear string
}

// State says what exists of a volume.
type State int

// The states of a volume.
const (
	// Absent: there is nothing, or the rest of an interrupted Format. Only then may it be formatted.
	Absent State = iota
	// Closed: it exists and cannot be read.
	Closed
	// Open: it is in use at the data directory, perhaps since an earlier core.
	Open
)
