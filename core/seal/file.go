package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/reeveproject/reeve/core/keys"
)

// File is the Sealer that does not encrypt: only the file's mode, 0400, protects the secrets.
type File struct{}

// errNotByFile quotes nothing of its input, which is a secret.
var errNotByFile = errors.New("the key in it is not what the sealer \"file\" writes")

// The form of File's output.
const (
	filePrefix = `{"key":"`
	fileSuffix = `"}`
)

// Name implements Sealer.
func (File) Name() string { return "file" }

// Seal implements Sealer.
func (File) Seal(_ context.Context, secret *keys.Secret) (json.RawMessage, error) {
	var sealed json.RawMessage
	err := secret.Use(func(content []byte) error {
		sealed = append(base64.StdEncoding.AppendEncode([]byte(filePrefix), content), fileSuffix...)
		return nil
	})
	return sealed, err
}

// Unseal implements Sealer.
func (File) Unseal(_ context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, sealed); err != nil {
		return nil, errNotByFile
	}
	text, starts := bytes.CutPrefix(compact.Bytes(), []byte(filePrefix))
	text, ends := bytes.CutSuffix(text, []byte(fileSuffix))
	if !starts || !ends {
		return nil, errNotByFile
	}
	secret := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	defer clear(secret)
	n, err := base64.StdEncoding.Strict().Decode(secret, text)
	if err != nil || n == 0 {
		return nil, errNotByFile
	}
	return keys.SecretOf(secret[:n])
}
