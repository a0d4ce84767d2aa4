package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"filippo.io/age"

	"github.com/reeveproject/reeve/core/storage"
)

// version is the version of what is in a recovery file, in its header and in what is encrypted.
const version = 1

// stanza is the type of the line in the header of a recovery file by which it says what it is and for whom. An age file says neither by itself; programs that
// do not know the line skip it.
const stanza = "reeve-recovery"

// described is a recipient that adds that line.
type described struct {
	age.Recipient
	text string
}

// Wrap implements age.Recipient.
func (d described) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	stanzas, _, err := d.WrapWithLabels(fileKey)
	return stanzas, err
}

// WrapWithLabels implements age.RecipientWithLabels.
func (d described) WrapWithLabels(fileKey []byte) (stanzas []*age.Stanza, labels []string, err error) {
	if labelled, ok := d.Recipient.(age.RecipientWithLabels); ok {
		stanzas, labels, err = labelled.WrapWithLabels(fileKey)
	} else {
		stanzas, err = d.Recipient.Wrap(fileKey)
	}
	return append(stanzas, &age.Stanza{Type: stanza, Args: []string{strconv.Itoa(version), d.text}}), labels, err
}

// The lines of an age header that matter here.
const (
	firstLine    = "age-encryption.org/v1"
	stanzaPrefix = "-> "
	lastPrefix   = "--- "
)

// recipientOf reads the header of a recovery file. Nothing proves it: that would need the recovery key.
func recipientOf(file []byte) (string, error) {
	if len(file) == 0 {
		return "", errors.New("it is empty")
	}
	recipient := ""
	for i := 0; ; i++ {
		text, rest, whole := bytes.Cut(file, []byte("\n"))
		if !whole {
			return "", errors.New("its header ends half-way")
		}
		file = rest
		line := string(text)
		fields := strings.Split(line, " ")
		switch {
		case i == 0:
			if line != firstLine {
				return "", errors.New("it is not an age file")
			}
		case strings.HasPrefix(line, lastPrefix):
			if recipient == "" {
				return "", errors.New("it is an age file, but not one that a node has written")
			}
			if len(file) == 0 {
				return "", errors.New("it ends after its header")
			}
			return recipient, nil
		case len(fields) > 1 && fields[0]+" " == stanzaPrefix && fields[1] == stanza:
			if recipient != "" || len(fields) != 4 {
				return "", errors.New("its header is not one that a node writes")
			}
			found, err := strconv.Atoi(fields[2])
			if err != nil {
				return "", errors.New("its header names no version")
			}
			if found != version {
				return "", &storage.VersionError{Found: found, Known: version}
			}
			if err := Recipient(fields[3]); err != nil {
				return "", fmt.Errorf("its header names no recipient: %w", err)
			}
			recipient = fields[3]
		}
	}
}
