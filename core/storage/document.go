package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxDocument is the largest document in bytes. A node's documents hold a few keys and names.
const maxDocument = 1 << 20

// document is the format of a file in system/. The version comes first and tells a newer file from a damaged one. The sum covers version and content,
// so every change to the file is noticed.
type document struct {
	Version int    `json:"version"`
	Sum     string `json:"sum"`
	Content any    `json:"content"`
}

// VersionError says that this reeved does not read the document's version.
type VersionError struct {
	// Found is the document's version, Known the version that this reeved reads.
	Found, Known int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it has version %d, and this reeved reads version %d: use the reeved that wrote it, or a newer one", e.Found, e.Known)
}

// errDamaged quotes nothing of the document, because it may be a secret.
var errDamaged = errors.New("it is damaged: its content does not match its sum")

// WriteDocument writes content as a versioned JSON document, like WriteFile. It overwrites the bytes of the file that it replaces, so that a node's
// former keys do not stay on the disk, as far as the disk allows that.
func WriteDocument(path string, version int, content any, mode os.FileMode) error {
	encoded, err := encodeDocument(version, content)
	if err != nil {
		return fmt.Errorf("storage: write %s: %w", path, err)
	}
	before, beforeErr := replaced(path)
	err = WriteFile(path, encoded, mode)
	if beforeErr == nil {
		if err != nil {
			return errors.Join(err, before.file.Close())
		}
		// The new document is in place, so a failed erase is no error.
		_ = before.erase()
	}
	return err
}

// ReadDocument decodes a document of WriteDocument into content, a pointer. It accepts only the exact bytes that were written. It returns
// fs.ErrNotExist if there is no file, and *VersionError for another version. Errors do not name the file.
func ReadDocument(path string, version int, content any) error {
	encoded, err := ReadSmall(path, maxDocument)
	if err != nil {
		return err
	}
	return decodeDocument(encoded, version, content)
}

func encodeDocument(version int, content any) ([]byte, error) {
	compact, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append(fmt.Appendf(nil, "%d\n", version), compact...))
	encoded, err := json.MarshalIndent(document{Version: version, Sum: hex.EncodeToString(sum[:]), Content: json.RawMessage(compact)}, "", "  ")
	return append(encoded, '\n'), err
}

func decodeDocument(encoded []byte, version int, content any) error {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(encoded, &head); err != nil || head.Version == nil {
		return errDamaged
	}
	if *head.Version != version {
		return &VersionError{Found: *head.Version, Known: version}
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&document{Content: content}); err != nil {
		return errDamaged
	}
	// One comparison finds everything else: a wrong sum, another spelling of a name, bytes before or after.
	if again, err := encodeDocument(version, content); err != nil || !bytes.Equal(again, encoded) {
		return errDamaged
	}
	return nil
}

// ReadSmall reads a small regular file. It does not follow a link and does not block on a pipe. Errors do not name the file.
func ReadSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, stripPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stripPath(err)
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("it is not a small regular file (%s, %d bytes)", info.Mode(), info.Size())
	}
	content := make([]byte, info.Size())
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, stripPath(err)
	}
	return content, nil
}
