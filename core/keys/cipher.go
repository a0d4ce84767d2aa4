package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"reflect"
)

// Encrypt returns a nonce, the ciphertext, which is as long as the plaintext, and a tag.
const (
	nonceSize = 12
	tagSize   = 16
)

// ErrDamaged says that another key encrypted the data, or that it was changed since.
var ErrDamaged = errors.New("keys: it was encrypted by another key, or has changed since")

// Encrypt encrypts a secret with a key of Size bytes (AES-256-GCM). The associated data is authenticated but not encrypted.
func Encrypt(key, plain *Secret, associated []byte) ([]byte, error) {
	var sealed []byte
	err := withCipher(key, func(aead cipher.AEAD) error {
		return plain.Use(func(content []byte) error {
			sealed = make([]byte, nonceSize, nonceSize+len(content)+tagSize)
			// rand.Read never fails.
			_, _ = rand.Read(sealed)
			sealed = aead.Seal(sealed, sealed, content, associated)
			return nil
		})
	})
	return sealed, err
}

// Decrypt returns the plaintext. ErrDamaged if key, ciphertext or associated data are wrong.
func Decrypt(key *Secret, sealed, associated []byte) (*Secret, error) {
	if len(sealed) <= nonceSize+tagSize {
		return nil, ErrDamaged
	}
	var plain *Secret
	err := withCipher(key, func(aead cipher.AEAD) error {
		var err error
		plain, err = Fill(len(sealed)-nonceSize-tagSize, func(content []byte) error {
			// It decrypts into the secret's own memory, which has the right size.
			if _, err := aead.Open(content[:0], sealed[:nonceSize], sealed[nonceSize:], associated); err != nil {
				return ErrDamaged
			}
			return nil
		})
		return err
	})
	return plain, err
}

// withCipher calls with with the key's cipher, and wipes the cipher's copy of the key afterwards.
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

// wipe zeroes the value behind a pointer. The standard library's ciphers keep their expanded keys there, and an expanded key begins with the key.
func wipe(pointer any) {
	if value := reflect.ValueOf(pointer); value.Kind() == reflect.Pointer && !value.IsNil() {
		value.Elem().SetZero()
	}
}
