package access

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whatever the file of starts holds, the next start is not before now, and the one after it is later.
func FuzzNextStart(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"start":1000}`, `{"version":1,"start":9223372036854775806}`, `{"version":1,"start":9223372036854775807}`, `{"version":1,"start":-1}`, `{"version":2,"start":5}`, "", "{", "null", "\x00\xff",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "start.json")
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		first, err := NextStart(path, now)
		if err != nil || first.Before(now) {
			t.Fatalf("%s, %v", first, err)
		}
		if first.UnixNano() >= latestStart {
			t.Skip()
		}
		second, err := NextStart(path, now)
		if err != nil || second.UnixNano() <= first.UnixNano() {
			t.Errorf("%s after %s: %v", second, first, err)
		}
	})
}
