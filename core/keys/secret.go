package keys

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Size is the size of a NUK and of a CUK in bytes.
const Size = 32

// maxSize is the largest secret in bytes. A secret is a key, or a few of them.
const maxSize = 1 << 20

// ErrDestroyed says that a secret was used after Destroy, or is nil.
var ErrDestroyed = errors.New("keys: the key is not in memory any more")

// errEncoded keeps secrets from being encoded by mistake. A placeholder would be taken for the key when it is decoded.
var errEncoded = errors.New("keys: a secret cannot be encoded")

// Secret is a key in locked memory that is not in core dumps and is zeroed by Destroy. Printing or encoding it reveals nothing. nil means no secret.
// It is safe for concurrent use.
type Secret struct{ memory *memory }

// memory holds a secret's bytes. It is apart from Secret so that a copy of a Secret is the same secret, and reflection does not reach the bytes.
type memory struct {
	mu sync.Mutex
	// idle is signalled when the last use ends.
	idle    *sync.Cond
	uses    int
	content []byte
	// mapped is the whole mapping, which begins with content; nil once it is zeroed.
	mapped []byte
	// destroyed stops new uses.
	destroyed bool
	cleanup   runtime.Cleanup
}

// allocate returns a secret of zeros.
func allocate(size int) (*Secret, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("keys: a secret cannot have %d bytes, only 1 to %d", size, maxSize)
	}
	page := unix.Getpagesize()
	mapped, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("keys: allocate memory for a key: %w", err)
	}
	// The limit on locked memory may be reached, and an old kernel may not know the advice. The node starts all the same, because each is one of
	// several defences: the machine decides about swap, and reeved disables core dumps.
	_ = unix.Mlock(mapped)
	_ = unix.Madvise(mapped, unix.MADV_DONTDUMP)
	_ = unix.Madvise(mapped, unix.MADV_WIPEONFORK)
	m := &memory{content: mapped[:size:size], mapped: mapped}
	m.idle = sync.NewCond(&m.mu)
	// The garbage collector zeroes a secret that nobody destroyed.
	m.cleanup = runtime.AddCleanup(m, release, mapped)
	return &Secret{memory: m}, nil
}

// release zeroes a mapping and unmaps it.
func release(mapped []byte) {
	clear(mapped)
	// Munmap only fails for a range that is not mapped.
	_ = unix.Munmap(mapped)
}

// NewSecret returns size random bytes.
func NewSecret(size int) (*Secret, error) {
	return Fill(size, func(content []byte) error {
		// rand.Read never fails.
		_, _ = rand.Read(content)
		return nil
	})
}

// SecretOf returns a secret with the content, and zeroes content.
func SecretOf(content []byte) (*Secret, error) {
	defer clear(content)
	return Fill(len(content), func(secret []byte) error {
		copy(secret, content)
		return nil
	})
}

// Fill returns a secret of size bytes that with wrote, so that no other copy exists. It returns with's error.
func Fill(size int, with func(content []byte) error) (*Secret, error) {
	s, err := allocate(size)
	if err != nil {
		return nil, err
	}
	if err := s.Use(with); err != nil {
		s.Destroy()
		return nil, err
	}
	return s, nil
}

// Use calls with with the secret's bytes, which are valid only during the call. It returns ErrDestroyed or with's error. with must not destroy the
// secret.
func (s *Secret) Use(with func(content []byte) error) error {
	if s == nil || s.memory == nil {
		return ErrDestroyed
	}
	m := s.memory
	m.mu.Lock()
	if m.destroyed {
		m.mu.Unlock()
		return ErrDestroyed
	}
	m.uses++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.uses--; m.uses == 0 {
			m.idle.Broadcast()
		}
	}()
	defer forget(registers)
	return with(m.content)
}

// registers is the size in bytes of all vector registers that amd64 copies with: a copy of this size goes through each of them.
const registers = 256

// forget overwrites the vector registers in which copying, and on amd64 encrypting, left key material. When a thread is interrupted, the kernel and
// the runtime save its registers on stacks in ordinary memory. An interrupt before forget, and on other processors what encrypting left, remain. The
// size is a parameter because for a constant the compiler would copy through a single register.
//
//go:noinline
func forget(size int) {
	var from, to [registers]byte
	copy(to[:size], from[:size])
	runtime.KeepAlive(&to)
}

// Len returns the number of bytes; 0 if the secret is destroyed.
func (s *Secret) Len() int {
	size := 0
	_ = s.Use(func(content []byte) error { size = len(content); return nil })
	return size
}

// Clone returns a copy of the secret.
func (s *Secret) Clone() (*Secret, error) {
	var clone *Secret
	err := s.Use(func(content []byte) error {
		var err error
		clone, err = Fill(len(content), func(next []byte) error { copy(next, content); return nil })
		return err
	})
	return clone, err
}

// Equal compares two secrets in constant time. nil equals nil. A destroyed secret equals nothing.
func (s *Secret) Equal(other *Secret) bool {
	if s == nil || other == nil {
		return s == nil && other == nil
	}
	equal := false
	_ = s.Use(func(mine []byte) error {
		return other.Use(func(theirs []byte) error {
			equal = subtle.ConstantTimeCompare(mine, theirs) == 1
			return nil
		})
	})
	return equal
}

// ID names the key without revealing it. It is empty if the secret is destroyed.
func (s *Secret) ID() string {
	id := ""
	_ = s.Use(func(content []byte) error {
		named := hmac.New(sha256.New, content)
		named.Write([]byte("reeve key id v1"))
		id = hex.EncodeToString(named.Sum(nil)[:8])
		return nil
	})
	return id
}

// Destroy waits for running uses and zeroes the secret. It may be called on nil and more than once.
func (s *Secret) Destroy() {
	if s == nil || s.memory == nil {
		return
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.destroyed = true
	for m.uses > 0 {
		m.idle.Wait()
	}
	if m.mapped != nil {
		m.cleanup.Stop()
		release(m.mapped)
		m.content, m.mapped = nil, nil
	}
}

// hidden is what prints instead of a secret.
const hidden = "(secret)"

// String implements fmt.Stringer. It reveals nothing.
func (s Secret) String() string { return hidden }

// Format implements fmt.Formatter for every verb. It reveals nothing.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText implements encoding.TextMarshaler and fails.
func (s Secret) MarshalText() ([]byte, error) { return nil, errEncoded }

// MarshalJSON implements json.Marshaler and fails.
func (s Secret) MarshalJSON() ([]byte, error) { return nil, errEncoded }

// MarshalBinary implements encoding.BinaryMarshaler, and so covers gob. It fails.
func (s Secret) MarshalBinary() ([]byte, error) { return nil, errEncoded }
