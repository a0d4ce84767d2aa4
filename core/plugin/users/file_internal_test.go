package users

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
)

// Whatever is in the files that the package keeps, it is read or refused with the name of the file, and is not changed.
func FuzzFiles(f *testing.F) {
	for kind, seed := range []string{
		`{"version":1,"last":{"consensus":7,"_describe":3}}`,
		`{"version":1,"roles":{"consensus":1,"curator":2}}`,
		`{"version":1,"ranges":[{"start":1879048192,"owner":"/a/data"},{"start":4294967295,"owner":""}]}`,
	} {
		f.Add(uint8(kind), []byte(seed))
		f.Add(uint8(kind), []byte(seed[:len(seed)/2]))
	}
	for _, seed := range []string{"", "null", "[]", `{"version":2}`, `{"version":1,"last":null,"roles":[]}`, `{"version":1,"last":{"a":-1}}`, "\x00\xff", `{"version":1e400}`} {
		for kind := range uint8(3) {
			f.Add(kind, []byte(seed))
		}
	}
	dir := f.TempDir()
	path := filepath.Join(dir, "file.json")
	f.Fuzz(func(t *testing.T, kind uint8, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		switch kind % 3 {
		case 0:
			var c *Counters
			if c, err = OpenCounters(path, filepath.Join(dir, "none.json")); err == nil {
				c.last["another"]++ // there is a map in any case
			}
		case 1:
			err = storage.ReadJSON(path, formatVersion, &assignmentsFile{})
		case 2:
			var file rangesFile
			if err = storage.ReadJSON(path, formatVersion, &file); err == nil && len(file.Ranges) < 4 {
				all := reservations{path: path, list: file.Ranges, held: make([]bool, len(file.Ranges))}
				free, lock, err := all.free(dir)
				if err == nil && (free.Start < firstUID || uint64(free.Start)+rangeSize > 1<<31) {
					t.Fatalf("the range %+v is not one to give away", free)
				}
				_ = lock.Close()
			}
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
		if now, readErr := os.ReadFile(path); readErr != nil || string(now) != string(content) {
			t.Errorf("the file was changed: %q, %v", now, readErr)
		}
	})
}
