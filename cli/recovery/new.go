package recovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"filippo.io/age"

	"github.com/reeveproject/reeve/cli/fault"
)

// New makes a recovery key, and returns the text of its file and its public half.
func New(now time.Time) (text []byte, recipient string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, "", fault.Wrap(fault.Failed, err, "no recovery key can be made", "")
	}
	recipient = identity.Recipient().String()
	head := "# A recovery key of Reeve, made " + now.UTC().Format(time.RFC3339) + ". Whoever has it opens the volumes that were made for it.\n# public key: " + recipient + "\n"
	text = make([]byte, 0, len(head)+128)
	return append(append(append(text, head...), identity.String()...), '\n'), recipient, nil
}

// Create makes a recovery key in a file that only its owner may read, and returns its public half. A file that is there is never touched.
func Create(path string, now time.Time) (string, error) {
	// Not by a draft and a link: a stick on which a key is kept offline may know no links.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", fault.New(fault.Refused, path+" is there already, and a key is never overwritten", "Give another file.")
	}
	if err != nil {
		return "", fileFault(err, "the recovery key cannot be kept", "Give a file in a directory that is there and that you may write.")
	}
	text, recipient, err := New(now)
	defer clear(text)
	if err == nil {
		_, err = file.Write(text)
	}
	if err = errors.Join(err, file.Chmod(0o600), file.Sync(), file.Close()); err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		// Half a key is worth nothing to anybody.
		return "", fileFault(errors.Join(err, os.Remove(path)), "the recovery key cannot be kept in "+path, "Give another file.")
	}
	return recipient, nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	err = directory.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // Some file systems cannot, and have nothing to lose there.
	}
	return errors.Join(err, directory.Close())
}

func fileFault(err error, what, next string) error {
	code := fault.Failed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = fault.Refused
	}
	return fault.Wrap(code, err, what, next)
}
