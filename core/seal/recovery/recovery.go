package recovery

import (
	"crypto/ed25519"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// Recovered is all that opens a volume, even where the sealed configuration and the wrapped data key are lost.
type Recovered struct {
	ClusterID string
	NodeKey   ed25519.PrivateKey
	JoinKey   ed25519.PrivateKey
	Owner     ed25519.PublicKey
	Kind      storage.VolumeKind
	// Location is where the volume was.
	Location       string
	NUK, CUK, Data *keys.Secret
}

// Recipient checks an age recipient, as parameters have it.
func Recipient(text string) error { panic("skeleton") }

// Write replaces the recovery file at path.
func Write(path, recipient string, r *Recovered) error { panic("skeleton") }

// Read returns the recovery file as it is, encrypted, and its recipient. fs.ErrNotExist if there is none.
func Read(path string) (file []byte, recipient string, err error) { panic("skeleton") }

// Parse reads what was in a recovery file, and zeroes it.
func Parse(recovered []byte) (*Recovered, error) { panic("skeleton") }
