package recovery

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"filippo.io/age"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

// Recovered is everything that opens a volume, even if the sealed configuration and the wrapped data key are lost.
type Recovered struct {
	ClusterID string
	NodeKey   ed25519.PrivateKey
	JoinKey   ed25519.PrivateKey
	Owner     ed25519.PublicKey
	Kind      storage.VolumeKind
	// Registration says how the node found its cluster when the file was written; nil for a node that made its cluster, and in files of older nodes.
	Registration *seal.Registration
	// Recipient is the age recipient of the file; empty in files of older nodes. The header names it too, but whoever has the disk can change the
	// header. Write sets it.
	Recipient string
	// Location is where the volume was, Sealer what sealed the node's secrets.
	Location, Sealer string
	NUK, CUK, Data   *keys.Secret
}

// Destroy zeroes the volume's keys.
func (r *Recovered) Destroy() {
	for _, secret := range []*keys.Secret{r.NUK, r.CUK, r.Data} {
		secret.Destroy()
	}
}

// maxFile is the largest file in bytes. It holds a few keys and names.
const maxFile = 1 << 20

// mode is the file's mode. The content is encrypted, but nobody else needs the file.
const mode = 0o400

// DamagedError says that the recovery file was changed, so the recovery key may not open it.
type DamagedError struct {
	// Path is the file.
	Path string
	// Err is the reason.
	Err error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("recovery: the recovery file %s is damaged (%v): restore it from a backup of this node, or write it anew while the volume is open (`reeve node keys rotate`)", e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// Recipient checks an age recipient, the public half of a recovery key.
func Recipient(text string) error {
	_, err := parseRecipient(text)
	return err
}

func parseRecipient(text string) (age.Recipient, error) {
	var recipient age.Recipient
	var err error
	switch {
	case strings.HasPrefix(text, "age1pq1"):
		recipient, err = age.ParseHybridRecipient(text)
	case strings.HasPrefix(text, "AGE-SECRET-KEY-"):
		// Do not quote it: it is the secret half.
		return nil, errors.New("recovery: this is the secret half of a recovery key, and the node needs the public one (\"age1...\"): make a new recovery key, and keep its secret half offline")
	default:
		recipient, err = age.ParseX25519Recipient(text)
	}
	if err != nil {
		return nil, fmt.Errorf("recovery: %q is not the public half of a recovery key, an age recipient (\"age1...\"), as `reeve recovery-key new` shows it: %w", text, err)
	}
	return recipient, nil
}

// Write replaces the recovery file at path. It writes a digest beside it, as sha256sum does. Without the digest only the recovery key, which is
// offline, could tell whether the file is intact.
func Write(path, recipient string, r *Recovered) error {
	to, err := parseRecipient(recipient)
	if err != nil {
		return err
	}
	named := *r
	named.Recipient = recipient
	plain, err := encode(&named)
	if err != nil {
		return fmt.Errorf("recovery: cannot write the recovery file %s: %w", path, err)
	}
	defer plain.Destroy()
	var file bytes.Buffer
	encrypted, err := age.Encrypt(&file, described{Recipient: to, text: recipient})
	if err != nil {
		return fmt.Errorf("recovery: encrypt for %s: %w", recipient, err)
	}
	err = plain.Use(func(content []byte) error {
		// One write, for which encode chose the length.
		_, err := encrypted.Write(content)
		return errors.Join(err, encrypted.Close())
	})
	if err != nil {
		return fmt.Errorf("recovery: encrypt for %s: %w", recipient, err)
	}
	if err := storage.WriteFile(path, file.Bytes(), mode); err != nil {
		return err
	}
	return storage.WriteFile(path+digestSuffix, digest(path, file.Bytes()), mode)
}

// Read returns the encrypted recovery file and its recipient. fs.ErrNotExist if there is none; *DamagedError if it is not a recovery file. Damage to
// the encrypted part goes unnoticed here: see Check.
func Read(path string) (file []byte, recipient string, err error) {
	file, err = storage.ReadSmall(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("recovery: there is no recovery file %s: %w", path, fs.ErrNotExist)
	}
	if err == nil {
		recipient, err = recipientOf(file)
	}
	if err != nil {
		return nil, "", &DamagedError{Path: path, Err: err}
	}
	return file, recipient, nil
}

// Check says whether the recovery file is intact, so that the recovery key opens it. fs.ErrNotExist if there is none. *DamagedError if it is not
// intact, also after an interrupted Write, which the next Write repairs.
func Check(path string) error {
	file, _, err := Read(path)
	if err != nil {
		return err
	}
	written, err := storage.ReadSmall(path+digestSuffix, maxFile)
	if err != nil {
		return &DamagedError{Path: path, Err: fmt.Errorf("cannot read its digest %s: %w", path+digestSuffix, err)}
	}
	if !bytes.Equal(written, digest(path, file)) {
		return &DamagedError{Path: path, Err: fmt.Errorf("it does not have the digest in %s", path+digestSuffix)}
	}
	return nil
}

// digestSuffix is the suffix of the digest's file name.
const digestSuffix = ".sha256"

// Files are the files that Write writes.
func Files(path string) []string { return []string{path, path + digestSuffix} }

// digest is a line of sha256sum, so that `sha256sum -c` checks a copy.
func digest(path string, file []byte) []byte {
	sum := sha256.Sum256(file)
	return fmt.Appendf(nil, "%s  %s\n", hex.EncodeToString(sum[:]), path[strings.LastIndexByte(path, '/')+1:])
}
