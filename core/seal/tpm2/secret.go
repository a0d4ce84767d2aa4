package tpm2

import (
	"errors"

	"github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/keys"
)

// sensitiveHead is the size of TPMS_SENSITIVE_CREATE before the secret: an empty authorization and the secret's size, two bytes each.
const sensitiveHead = 4

var errUnencrypted = errors.New("the session does not encrypt")

// sealing is a session that copies the secret into the command at the last moment, into the bytes that it then encrypts. The command is built with
// zeros instead, so none of its buffers ever holds the secret.
type sealing struct {
	tpm2.Session
	secret *keys.Secret
	// err is a failure of this process.
	err error
}

// Encrypt implements tpm2.Session.
func (s *sealing) Encrypt(parameter []byte) error {
	s.err = s.secret.Use(func(content []byte) error {
		if !s.IsDecryption() {
			return errUnencrypted
		}
		if len(parameter) != sensitiveHead+len(content) {
			return errors.New("the command has another size than the secret")
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

// unsealing is a session that takes the secret from the bytes of the answer that it decrypts, and leaves zeros there. Decrypt is called after the
// answer was authenticated.
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
