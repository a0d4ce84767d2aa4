package keys

// Halves are the two keys that together open a volume.
type Halves struct{ NUK, CUK *Secret }

// Volume is which volume a data key is for: it is wrapped for this one only.
type Volume struct{ ClusterID, NodeID, Kind string }

// Store is the file of the wrapped data key. It holds one wrapping, and two while a half is being rotated.
type Store struct{ path string }

// NewStore returns the store in the file at path.
func NewStore(path string) *Store { return &Store{path: path} }

// Exists reports whether there is a file, readable or not.
func (s *Store) Exists() (bool, error) { panic("skeleton") }

// Add wraps the data key by two halves, beside what is there. Wrapped by the same halves already, it stays as it is.
func (s *Store) Add(volume Volume, halves Halves, data *Secret) error { panic("skeleton") }

// Open returns the data key. ErrOtherKeys if it is not wrapped by these halves; *UnreadableError if the file is damaged, missing or newer.
func (s *Store) Open(volume Volume, halves Halves) (*Secret, error) { panic("skeleton") }

// Keep removes all wrappings but the one by these halves, which must be there.
func (s *Store) Keep(volume Volume, halves Halves) error { panic("skeleton") }
