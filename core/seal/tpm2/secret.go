package tpm2

import (
	"errors"

	"github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/keys"
)

// sensitiveHead is what TPMS_SENSITIVE_CREATE has before the secret: an empty authorization and the size of the secret, two bytes each.
const sensitiveHead = 4

var errUnencrypted = errors.New("the session does not encrypt")

// sealing is a session that puts the secret into a command at the last moment, in the very bytes that it then encrypts. The command is made with zeros of the
// same size in its place, so that none of the buffers in which it is put together ever holds the secret.
type sealing struct {
	tpm2.Session
	secret *keys.Secret
	// err is why it could not, for a reason of this process.
	err error
}

// Encrypt implements tpm2.Session.
func (s *sealing) Encrypt(parameter []byte) error {
	s.err = s.secret.Use(func(content []byte) error {
		if !s.IsDecryption() {
			return errUnencrypted
		}
		if len(parameter) != sensitiveHead+len(content) {
			return errors.New("the command has no room of the secret's size")
		}
		copy(parameter[sensitiveHead:], content)
		if err := s.Session.Encrypt(parameter); err != nil {
			clear(parameter)
			return err
		}
		return nil
	})
	return s.err
}

// unsealing is a session that takes the secret out of an answer in the very bytes in which it was decrypted, and leaves zeros for whoever reads on. It is
// called after the answer was authenticated.
type unsealing struct {
	tpm2.Session
	secret *keys.Secret
	err    error
}

// Decrypt implements tpm2.Session.
func (u *unsealing) Decrypt(parameter []byte) error {
	if !u.IsEncryption() {
		u.err = errUnencrypted
		return u.err
	}
	if err := u.Session.Decrypt(parameter); err != nil {
		clear(parameter)
		return err
	}
	u.secret.Destroy()
	u.secret, u.err = keys.SecretOf(parameter)
	return u.err
}
