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

// maxDocument bounds a document: those of a node hold a few keys and names.
const maxDocument = 1 << 20

// document is what a file in system/ is: a version first, so that a newer one is told from a damaged one, and a sum over it and the content, so that no
// change to the file goes unseen.
type document struct {
	Version int    `json:"version"`
	Sum     string `json:"sum"`
	Content any    `json:"content"`
}

// VersionError says that a document is of another version than this reeved reads.
type VersionError struct {
	// Found is the document's version, Known the one that this reeved reads.
	Found, Known int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it has version %d, and this reeved reads version %d: use the reeved that wrote it, or a newer one", e.Found, e.Known)
}

// errDamaged quotes nothing of the document, which may be a secret.
var errDamaged = errors.New("it is damaged: it is not what was written")

// WriteDocument is WriteFile with a versioned document that has the JSON of content. What it replaces is overwritten, as far as the disk does that: the former
// keys of a node are not to be found on it.
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
		// The new document counts, whatever becomes of the old one's bytes.
		_ = before.erase()
	}
	return err
}

// ReadDocument reads a document that WriteDocument has written into content, a pointer. It takes nothing but exactly what was written: any other byte is an
// error. fs.ErrNotExist if there is none, *VersionError if it is of another version. Errors say nothing of where the document is.
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
	// One comparison finds whatever else there may be: a sum that is not that of the content, a name that is spelled otherwise, bytes before or after.
	if again, err := encodeDocument(version, content); err != nil || !bytes.Equal(again, encoded) {
		return errDamaged
	}
	return nil
}

// ReadSmall reads a file that is small and regular; it never follows a link, and never waits for what a pipe may give. Errors do not say which file it is.
func ReadSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("it is not a small regular file (%s, %d bytes)", info.Mode(), info.Size())
	}
	content := make([]byte, info.Size())
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, bare(err)
	}
	return content, nil
}
