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

// Size is the size of a NUK and of a CUK, in bytes.
const Size = 32

// maxSize bounds a secret: keys, and the few of them that are kept together.
const maxSize = 1 << 20

// ErrDestroyed says that a secret was used after it had been destroyed, or that there is none.
var ErrDestroyed = errors.New("keys: the key is not in memory any more")

// errEncoded keeps a secret from being written down by mistake. It is no placeholder, which would be taken for the key when it is read again.
var errEncoded = errors.New("keys: a secret is not encoded")

// Secret is a key in memory that is locked, that is not in core dumps, and that is zeroed when it is destroyed. Whatever prints or encodes it gets no part of
// it. A nil Secret is none. It may be used from several goroutines.
type Secret struct{ memory *memory }

// memory is what a secret lies in. It is apart from Secret so that a copy of a Secret is the same secret, and nothing that walks over values finds the bytes.
type memory struct {
	mu sync.Mutex
	// idle is told when the last use has ended.
	idle    *sync.Cond
	uses    int
	content []byte
	// mapped is the whole of the mapping that the content begins; nil once the secret is zeroed.
	mapped []byte
	// destroyed says that nobody may begin to use it.
	destroyed bool
	cleanup   runtime.Cleanup
}

// allocate returns a secret of zeros.
func allocate(size int) (*Secret, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("keys: a secret of %d bytes: it has 1 to %d", size, maxSize)
	}
	page := unix.Getpagesize()
	mapped, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("keys: take memory for a key: %w", err)
	}
	// How much may be locked is limited, and a kernel may know less advice. A node comes up all the same: each is one wall of several (swap is the machine's,
	// and reeved lets no core dump be written).
	_ = unix.Mlock(mapped)
	_ = unix.Madvise(mapped, unix.MADV_DONTDUMP)
	_ = unix.Madvise(mapped, unix.MADV_WIPEONFORK)
	m := &memory{content: mapped[:size:size], mapped: mapped}
	m.idle = sync.NewCond(&m.mu)
	// A secret that was forgotten instead of destroyed is not left in memory either.
	m.cleanup = runtime.AddCleanup(m, release, mapped)
	return &Secret{memory: m}, nil
}

// release zeroes a mapping and gives it back.
func release(mapped []byte) {
	clear(mapped)
	// Only a range that is not mapped could be refused.
	_ = unix.Munmap(mapped)
}

// NewSecret returns size random bytes.
func NewSecret(size int) (*Secret, error) {
	return Fill(size, func(content []byte) error {
		// It never fails.
		_, _ = rand.Read(content)
		return nil
	})
}

// SecretOf returns a secret with the content, and zeroes the content where it was.
func SecretOf(content []byte) (*Secret, error) {
	defer clear(content)
	return Fill(len(content), func(secret []byte) error {
		copy(secret, content)
		return nil
	})
}

// Fill returns a secret of size bytes that a function has written, so that they are in no other place. It fails with the function's error.
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

// Use calls a function with the secret's bytes, which are valid only during the call. It fails if the secret is destroyed, and with the function's error. The
// function must not destroy the secret.
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

// registers is how much the vector registers of amd64 hold that are used for copying, in bytes: a copy of this size goes through each of them.
const registers = 256

// forget overwrites the registers in which copying leaves what it copied, and on amd64 those in which encrypting leaves what it worked on: whenever a thread is
// interrupted, the kernel and the runtime write them to its stacks, which are in ordinary memory. A moment remains in which that happens first, and on other
// processors what encrypting has left. Its argument is registers: of a size that the compiler knows it would make a copy that takes one register.
//
//go:noinline
func forget(size int) {
	var from, to [registers]byte
	copy(to[:size], from[:size])
	runtime.KeepAlive(&to)
}

// Len is the number of its bytes; 0 if it is destroyed.
func (s *Secret) Len() int {
	size := 0
	_ = s.Use(func(content []byte) error { size = len(content); return nil })
	return size
}

// Clone returns another Secret of the same content.
func (s *Secret) Clone() (*Secret, error) {
	var clone *Secret
	err := s.Use(func(content []byte) error {
		var err error
		clone, err = Fill(len(content), func(next []byte) error { copy(next, content); return nil })
		return err
	})
	return clone, err
}

// Equal compares two secrets in constant time. None equals none, and a secret that is destroyed equals nothing.
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

// ID names the key without telling anything of it. It is empty if the secret is destroyed.
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

// Destroy zeroes the secret, when those who use it are done. It may be called more than once, and on nil.
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

// hidden is all that is ever printed of a secret.
const hidden = "(secret)"

// String implements fmt.Stringer. It gives nothing of the secret.
func (s Secret) String() string { return hidden }

// Format implements fmt.Formatter, for every verb. It gives nothing of the secret.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText implements encoding.TextMarshaler. It fails: a secret is written down only by who means to.
func (s Secret) MarshalText() ([]byte, error) { return nil, errEncoded }

// MarshalJSON implements json.Marshaler. It fails: a secret is written down only by who means to.
func (s Secret) MarshalJSON() ([]byte, error) { return nil, errEncoded }

// MarshalBinary implements encoding.BinaryMarshaler, and so stands for gob too. It fails: a secret is written down only by who means to.
func (s Secret) MarshalBinary() ([]byte, error) { return nil, errEncoded }
