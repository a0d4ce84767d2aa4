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

// version is the version of a recovery file's header and of its encrypted content.
const version = 1

// stanza is the type of a header line that marks a recovery file and names its recipient. A plain age file tells neither. Programs that do not know
// the line skip it.
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

// recipientOf reads the recipient in a recovery file's header. Only the recovery key could authenticate it.
func recipientOf(file []byte) (string, error) {
	if len(file) == 0 {
		return "", errors.New("it is empty")
	}
	recipient := ""
	for i := 0; ; i++ {
		text, rest, whole := bytes.Cut(file, []byte("\n"))
		if !whole {
			return "", errors.New("its header is truncated")
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
				return "", errors.New("it is an age file, but no node wrote it")
			}
			if len(file) == 0 {
				return "", errors.New("it ends after its header")
			}
			return recipient, nil
		case len(fields) > 1 && fields[0]+" " == stanzaPrefix && fields[1] == stanza:
			if recipient != "" || len(fields) != 4 {
				return "", errors.New("no node writes such a header")
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
