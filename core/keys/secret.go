package keys

// Size is the size of a NUK and of a CUK, in bytes.
const Size = 32

// Secret is a key in memory that is locked, that is not in core dumps, and that is zeroed when it is destroyed. Whatever prints or encodes it gets no part of
// it. A nil Secret is none.
type Secret struct{ content []byte }

// NewSecret returns size random bytes.
func NewSecret(size int) (*Secret, error) { panic("skeleton") }

// SecretOf returns a secret with the content, and zeroes the content where it was.
func SecretOf(content []byte) (*Secret, error) { panic("skeleton") }

// Use calls a function with the secret's bytes, which are valid only during the call. It fails if the secret is destroyed, and with the function's error.
func (s *Secret) Use(with func(content []byte) error) error { panic("skeleton") }

// Clone returns another Secret of the same content.
func (s *Secret) Clone() (*Secret, error) { panic("skeleton") }

// Equal compares two secrets in constant time.
func (s *Secret) Equal(other *Secret) bool { panic("skeleton") }

// ID names the key without telling anything of it.
func (s *Secret) ID() string { panic("skeleton") }

// Destroy zeroes the secret. It may be called more than once, and on nil.
func (s *Secret) Destroy() {}
