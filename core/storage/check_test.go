package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
)

func TestCheckNamesEverythingAndMakesNothing(t *testing.T) {
	base := t.TempDir()
	layout := storage.Layout{System: filepath.Join(base, "a", "system"), Data: filepath.Join(base, "a", "b", "data"), Run: filepath.Join(base, "c", "run")}
	if err := os.Chmod(filepath.Dir(base), 0o711); err != nil {
		t.Fatal(err)
	}
	said := func() (texts []string) {
		for _, problem := range storage.Check(layout) {
			// What is above the test's directory is the machine's.
			if strings.Contains(problem.Error(), base+"/") {
				texts = append(texts, problem.Error())
			}
		}
		return texts
	}
	if found := said(); len(found) > 0 {
		t.Errorf("of what is not there yet: %q", found)
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("it has made %v (%v)", entries, err)
	}
	for _, closed := range []string{"a", "a/b", "c"} {
		if err := os.Mkdir(filepath.Join(base, closed), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(layout.System, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{layout.System + " is not a directory"}
	if os.Geteuid() == 0 {
		want = append(want, strings.Join([]string{filepath.Join(base, "a"), filepath.Join(base, "a", "b"), filepath.Join(base, "c")}, " "))
	}
	found := said()
	if len(found) != len(want) {
		t.Fatalf("%q", found)
	}
	for i := range want {
		if !strings.Contains(found[i], want[i]) {
			t.Errorf("%q, want %q", found[i], want[i])
		}
	}
}
