package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"reflect"
)

// The parts of what Encrypt returns, besides the ciphertext, which is as long as the plaintext.
const (
	nonceSize = 12
	tagSize   = 16
)

// ErrDamaged says that something was not encrypted by this key, or has changed since.
var ErrDamaged = errors.New("keys: it was encrypted by another key, or has changed since")

// Encrypt encrypts a secret by a key of Size bytes (AES-256-GCM). What is associated with it is not encrypted, and must be the same when it is decrypted.
func Encrypt(key, plain *Secret, associated []byte) ([]byte, error) {
	var sealed []byte
	err := withCipher(key, func(aead cipher.AEAD) error {
		return plain.Use(func(content []byte) error {
			sealed = make([]byte, nonceSize, nonceSize+len(content)+tagSize)
			// It never fails.
			_, _ = rand.Read(sealed)
			sealed = aead.Seal(sealed, sealed, content, associated)
			return nil
		})
	})
	return sealed, err
}

// Decrypt returns what was encrypted. ErrDamaged if it cannot.
func Decrypt(key *Secret, sealed, associated []byte) (*Secret, error) {
	if len(sealed) <= nonceSize+tagSize {
		return nil, ErrDamaged
	}
	var plain *Secret
	err := withCipher(key, func(aead cipher.AEAD) error {
		var err error
		plain, err = Fill(len(sealed)-nonceSize-tagSize, func(content []byte) error {
			// It decrypts into the secret itself, which is just as large as it must be.
			if _, err := aead.Open(content[:0], sealed[:nonceSize], sealed[nonceSize:], associated); err != nil {
				return ErrDamaged
			}
			return nil
		})
		return err
	})
	return plain, err
}

// withCipher calls a function with the cipher of a key, and leaves nothing of the key in the memory that the cipher took.
func withCipher(key *Secret, with func(cipher.AEAD) error) error {
	return key.Use(func(content []byte) error {
		if len(content) != Size {
			return errors.New("keys: a key of another size than AES-256 needs")
		}
		block, err := aes.NewCipher(content)
		if err != nil {
			return err
		}
		defer wipe(block)
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		defer wipe(aead)
		return with(aead)
	})
}

// wipe zeroes what a pointer points to. The standard library's ciphers keep their expanded keys right there, and the first part of an expanded key is the key.
func wipe(pointer any) {
	if value := reflect.ValueOf(pointer); value.Kind() == reflect.Pointer && !value.IsNil() {
		value.Elem().SetZero()
	}
}
