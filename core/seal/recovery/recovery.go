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

// Recovered is all that opens a volume, even where the sealed configuration and the wrapped data key are lost.
type Recovered struct {
	ClusterID string
	NodeKey   ed25519.PrivateKey
	JoinKey   ed25519.PrivateKey
	Owner     ed25519.PublicKey
	Kind      storage.VolumeKind
	// Registration is by what the node finds the cluster that it has come into, as of when the file was written; nil for a node that has made its cluster, and in
	// the files of older nodes.
	Registration *seal.Registration
	// Recipient is the age recipient for which the file was written; empty in the files of older nodes. The header of the file says it as well, to whoever has the disk, and
	// whoever has the disk can write what they like there. Write sets it.
	Recipient string
	// Location is where the volume was, Sealer what sealed the node's secrets.
	Location, Sealer string
	NUK, CUK, Data   *keys.Secret
}

// Destroy zeroes the keys of the volume.
func (r *Recovered) Destroy() {
	for _, secret := range []*keys.Secret{r.NUK, r.CUK, r.Data} {
		secret.Destroy()
	}
}

// maxFile bounds the file: it holds a few keys and names.
const maxFile = 1 << 20

// mode is that of the file. Nobody reads anything in it without the recovery key, but it is nobody's business either.
const mode = 0o400

// DamagedError says that the recovery file is not what was written. The recovery key may not open it.
type DamagedError struct {
	// Path is the file.
	Path string
	// Err is why.
	Err error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("recovery: the recovery file %s is damaged (%v): restore it from a backup of this node, or have it written anew while the volume is open (`reeve node keys rotate`)", e.Path, e.Err)
}

// Unwrap returns why the file is damaged.
func (e *DamagedError) Unwrap() error { return e.Err }

// Recipient checks an age recipient, as parameters have it: the public half of a recovery key.
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
		// It is not quoted anywhere: it is the half that must be told to nobody.
		return nil, errors.New("recovery: this is the secret half of a recovery key, and the node needs the public one (\"age1...\"): make a new recovery key, and keep its secret half offline")
	default:
		recipient, err = age.ParseX25519Recipient(text)
	}
	if err != nil {
		return nil, fmt.Errorf("recovery: %q is not the public half of a recovery key, an age recipient (\"age1...\"), as `reeve recovery-key new` shows it: %w", text, err)
	}
	return recipient, nil
}

// Write replaces the recovery file at path. Beside it is its digest, as sha256sum writes it: only the recovery key could tell otherwise whether the file is
// whole, and that is far away.
func Write(path, recipient string, r *Recovered) error {
	to, err := parseRecipient(recipient)
	if err != nil {
		return err
	}
	named := *r
	named.Recipient = recipient
	plain, err := encode(&named)
	if err != nil {
		return fmt.Errorf("recovery: the recovery file %s is not written: %w", path, err)
	}
	defer plain.Destroy()
	var file bytes.Buffer
	encrypted, err := age.Encrypt(&file, described{Recipient: to, text: recipient})
	if err != nil {
		return fmt.Errorf("recovery: encrypt for %s: %w", recipient, err)
	}
	err = plain.Use(func(content []byte) error {
		// In one write, for which the length of the content is made: see encode.
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

// Read returns the recovery file as it is, encrypted, and its recipient. fs.ErrNotExist if there is none; *DamagedError if it is not a recovery file. A file that
// is damaged where only the recovery key would see it is returned as it is: Check tells.
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

// Check says whether the recovery file is as it was written, so that the recovery key will open it. fs.ErrNotExist if there is none, *DamagedError if it is not,
// which it also is after Write was stopped half-way: Write mends it.
func Check(path string) error {
	file, _, err := Read(path)
	if err != nil {
		return err
	}
	written, err := storage.ReadSmall(path+digestSuffix, maxFile)
	if err != nil {
		return &DamagedError{Path: path, Err: fmt.Errorf("its digest %s cannot be read: %w", path+digestSuffix, err)}
	}
	if !bytes.Equal(written, digest(path, file)) {
		return &DamagedError{Path: path, Err: fmt.Errorf("it does not have the digest in %s", path+digestSuffix)}
	}
	return nil
}

// digestSuffix is what the name of the file of the digest has more than that of the recovery file.
const digestSuffix = ".sha256"

// Files are the files that Write writes for a recovery file at path.
func Files(path string) []string { return []string{path, path + digestSuffix} }

// digest is a line of sha256sum, so that `sha256sum -c` checks a copy.
func digest(path string, file []byte) []byte {
	sum := sha256.Sum256(file)
	return fmt.Appendf(nil, "%s  %s\n", hex.EncodeToString(sum[:]), path[strings.LastIndexByte(path, '/')+1:])
}
