package volume_test

import (
	"os"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// own returns a directory without links in its path.
func own(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reeve-volume-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
