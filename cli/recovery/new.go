package recovery

import (
	"time"

	"filippo.io/age"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
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
	text, recipient, err := New(now)
	if err != nil {
		return "", err
	}
	defer clear(text)
	return recipient, keyfile.Keep(path, "the recovery key", text)
}
