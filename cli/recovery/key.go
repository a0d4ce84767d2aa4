package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
)

// maxKey bounds what is read as a key: one of age needs some 200 bytes, with its comments.
const maxKey = 64 << 10

// form is the advice for everything that is no recovery key.
const form = "A recovery key is what `reeve recovery-key new` or age-keygen writes: a line that begins with AGE-SECRET-KEY-1."

// Key is the private half of a recovery key.
type Key struct {
	// Recipient is its public half.
	Recipient string
	identity  age.Identity
}

// Guard keeps what is in the memory of this process out of core dumps, and from the debuggers of its user, for as long as the process lives.
func Guard() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// ReadFile reads the recovery key in a file.
func ReadFile(path string) (*Key, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.File(err, "cannot read the recovery key", "Give the file with --recovery-key, or - for the standard input.")
	}
	defer func() { _ = file.Close() }()
	return Read(file, path)
}

// Read reads a recovery key up to the end of a stream. what is where it comes from, for errors.
func Read(from io.Reader, what string) (*Key, error) {
	// One buffer that never grows: growing would leave copies behind.
	text := make([]byte, maxKey+1)
	defer clear(text)
	n, err := io.ReadFull(from, text)
	switch {
	case err == nil:
		return nil, fault.New(fault.Usage, what+" is too large for a recovery key", form)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fault.Wrap(fault.Failed, err, "cannot read the recovery key", "Give the file with --recovery-key, or - for the standard input.")
	}
	return Parse(text[:n], what)
}

// Parse finds the recovery key in the text of a key file: lines that are empty or begin with # are comments. It keeps nothing of the text, which the caller
// overwrites.
func Parse(text []byte, what string) (*Key, error) {
	if bytes.HasPrefix(text, []byte("age-encryption.org/v1")) || bytes.HasPrefix(text, []byte("-----BEGIN AGE ENCRYPTED FILE-----")) {
		return nil, fault.New(fault.Usage, what+" is itself encrypted by age",
			"Decrypt it on the way: `age -d FILE | reeve node unlock --recovery-key -`.")
	}
	var found *Key
	number := 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if found != nil {
			return nil, fault.New(fault.Usage, what+" holds more than one key", "Give a file with the recovery key alone.")
		}
		key, err := parseLine(line, fmt.Sprintf("line %d of %s", number, what))
		if err != nil {
			return nil, err
		}
		found = key
	}
	if found == nil {
		return nil, fault.New(fault.Usage, what+" holds no recovery key", form)
	}
	return found, nil
}

func parseLine(line []byte, what string) (*Key, error) {
	// The string is the line itself and no copy of it: it is used up to the end of this function, and the line is overwritten later.
	text := unsafe.String(unsafe.SliceData(line), len(line))
	switch {
	case strings.HasPrefix(text, "AGE-SECRET-KEY-PQ-1"):
		if identity, err := age.ParseHybridIdentity(text); err == nil {
			return &Key{Recipient: identity.Recipient().String(), identity: identity}, nil
		}
	case strings.HasPrefix(text, "AGE-SECRET-KEY-1"):
		if identity, err := age.ParseX25519Identity(text); err == nil {
			return &Key{Recipient: identity.Recipient().String(), identity: identity}, nil
		}
	case strings.HasPrefix(text, "age1"):
		return nil, fault.New(fault.Usage, what+" is the public half of a recovery key, which opens nothing", form)
	default:
		return nil, fault.New(fault.Usage, what+" is no recovery key", form)
	}
	// The parser's error is left out: it could quote the key.
	return nil, fault.New(fault.Usage, what+" is a damaged recovery key", "Compare it with your copy of it; a character is missing or another one.")
}

// CheckRecipient says whether a text is the public half of a recovery key; flag is where it was given, for the error.
func CheckRecipient(text, flag string) error {
	if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
		return fault.New(fault.Usage, "what was given with "+flag+" is a recovery key itself, which no command line may have: other users could see it",
			"Take it for lost and make another one (`reeve recovery-key new FILE`); give its public half, which begins with age1.")
	}
	var err error
	if strings.HasPrefix(text, "age1pq1") {
		_, err = age.ParseHybridRecipient(text)
	} else {
		_, err = age.ParseX25519Recipient(text)
	}
	if err != nil {
		return fault.New(fault.Usage, fmt.Sprintf("%s %q is not the public half of a recovery key", flag, text),
			"Give what `reeve recovery-key new` printed: it begins with age1.")
	}
	return nil
}
