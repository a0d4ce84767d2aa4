package passage_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/passage"
)

// The parents of a path count, those of a link and of its target, and nothing that is to be made.
func TestClosed(t *testing.T) {
	base := t.TempDir()
	open, target, link := filepath.Join(base, "open"), filepath.Join(base, "target"), filepath.Join(base, "links", "link")
	if err := errors.Join(os.Mkdir(open, 0o711), os.Mkdir(target, 0o750), os.Mkdir(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		filepath.Join(open, "a", "b"):    nil,
		filepath.Join(target, "a"):       {target},
		filepath.Join(link, "a", "data"): {filepath.Dir(link), target},
	} {
		found, err := passage.Closed(path)
		if err != nil {
			t.Fatal(err)
		}
		// What is above the test's directory is the machine's.
		found = slices.DeleteFunc(found, func(one string) bool { return !strings.HasPrefix(one, base+"/") })
		if !slices.Equal(found, want) {
			t.Errorf("%s: %v, want %v", path, found, want)
		}
	}
	if found, err := passage.Closed(filepath.Join(open, strings.Repeat("x", 300))); err == nil {
		t.Errorf("a path that cannot be: %v", found)
	}
}
