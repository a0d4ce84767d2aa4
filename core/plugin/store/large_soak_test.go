//go:build soak

package store

import "testing"

// It writes a gigabyte.
func TestStoreRefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	if _, err := store.Import(t.Context(), endless{}); err == nil {
		t.Error("it was imported")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
