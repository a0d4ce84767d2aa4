package fscrypt_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/reeveproject/reeve/core/storage/volume"
)

func hexOf(raw []byte) string { return hex.EncodeToString(raw) }

// A process that is killed before any step of any call leaves nothing that the same call, or the opposite one, does not go on from.
func TestKilledAtEveryStep(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		key, raw := newKey(t)
		text := hexOf(raw)
		steps := func(action string) int {
			output, err := n.call(t, action, text, 0, nil)
			must(t, err)
			count, err := strconv.Atoi(output)
			if err != nil || count == 0 {
				t.Fatalf("%s took %q steps", action, output)
			}
			return count
		}
		kill := func(action string, step int) {
			t.Helper()
			name, err := n.call(t, action, text, step, nil)
			if err == nil || name == "" {
				t.Fatalf("%s was not killed at step %d: %q, %v", action, step, name, err)
			}
			t.Logf("%s killed before %s", action, name)
		}
		kind := n.kind(nil)
		reset := func() {
			must(t, kind.Close(t.Context()))
			if n.image {
				must(t, os.Remove(n.file()))
				return
			}
			must(t, os.RemoveAll(n.data()))
			must(t, os.Mkdir(n.data(), 0o700))
		}
		formats := steps("format")
		opens := steps("open")
		closes := steps("close")
		t.Logf("steps: format %d, open %d, close %d", formats, opens, closes)
		for step := 1; step <= formats; step++ {
			reset()
			kill("format", step)
			if state, err := kind.State(t.Context()); err != nil || n.image && state != volume.Absent {
				t.Fatalf("after a killed format: %v, %v", state, err)
			}
			must(t, kind.Format(t.Context(), key))
			if step == formats && n.image {
				// Twice interrupted at the same place.
				reset()
				kill("format", step)
				kill("format", step)
				must(t, kind.Format(t.Context(), key))
			}
			must(t, kind.Open(t.Context(), key))
			must(t, kind.Close(t.Context()))
		}
		file := filepath.Join(n.data(), "file")
		must(t, kind.Open(t.Context(), key))
		must(t, os.WriteFile(file, []byte("content"), 0o600))
		must(t, kind.Close(t.Context()))
		check := func() {
			t.Helper()
			wantState(t, kind, volume.Open)
			if content, err := os.ReadFile(file); err != nil || string(content) != "content" {
				t.Fatalf("%q, %v", content, err)
			}
		}
		for step := 1; step <= opens; step++ {
			kill("open", step)
			must(t, kind.Open(t.Context(), key))
			check()
			must(t, kind.Close(t.Context()))
			wantState(t, kind, volume.Closed)
			kill("open", step)
			must(t, kind.Close(t.Context()))
			wantState(t, kind, volume.Closed)
		}
		for step := 1; step <= closes; step++ {
			must(t, kind.Open(t.Context(), key))
			kill("close", step)
			must(t, kind.Close(t.Context()))
			wantState(t, kind, volume.Closed)
			must(t, kind.Open(t.Context(), key))
			kill("close", step)
			must(t, kind.Open(t.Context(), key))
			check()
			must(t, kind.Close(t.Context()))
		}
		// Killed while it is open: it is used on by who has no key.
		_, err := n.call(t, "open", text, 0, nil)
		must(t, err)
		check()
		must(t, kind.Open(t.Context(), nil))
		check()
		must(t, kind.Close(t.Context()))
		wantState(t, kind, volume.Closed)
	})
}
