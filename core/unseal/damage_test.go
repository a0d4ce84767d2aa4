package unseal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// damages are what may become of a file.
func damages(content []byte) map[string]func(path string) error {
	write := func(content []byte) func(string) error {
		return func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600))
		}
	}
	all := map[string]func(string) error{
		"missing": os.Remove,
		"empty":   write(nil),
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"a link to nothing": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("/nonexistent", path))
		},
		"longer": write(append(append([]byte{}, content...), 'x')),
	}
	// Every length near the ends, where the marks of a format are, and a sample between.
	const nearEnd = 8 / damagesApart
	for length := 1; length < len(content); length++ {
		if length < nearEnd || length > len(content)-nearEnd || length%(61*damagesApart) == 0 {
			all[fmt.Sprintf("%d bytes of it", length)] = write(content[:length])
		}
	}
	for at := range content {
		if at%(37*damagesApart) == 0 || at < nearEnd/2 || at >= len(content)-nearEnd/2 {
			flipped := append([]byte{}, content...)
			flipped[at] ^= 1 << (at % 8)
			all[fmt.Sprintf("a bit of byte %d", at)] = write(flipped)
		}
	}
	return all
}

// TestDamaged damages every file of system/: the node says which, formats nothing, and the recovery key opens it.
func TestDamaged(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	node := b.up(t).Configuration.NodeID()
	if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase = seal.Member }); err != nil {
		t.Fatal(err)
	}
	recovered := b.recovered(t)
	b.reboot(t)
	saved := b.layout.System + ".saved"
	if err := os.CopyFS(saved, os.DirFS(b.layout.System)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(saved)
	if err != nil {
		t.Fatal(err)
	}
	// How each is got over: by itself, by the recovery key, or by neither.
	opens, unlocks, refuses := 0, 0, 0
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		path := filepath.Join(b.layout.System, entry.Name())
		content, err := os.ReadFile(filepath.Join(saved, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for name, damage := range damages(content) {
			what := entry.Name() + ": " + name
			b.reboot(t)
			if err := errors.Join(os.RemoveAll(b.layout.System), os.CopyFS(b.layout.System, os.DirFS(saved)), damage(path)); err != nil {
				t.Fatal(err)
			}
			err := b.start(t)
			if err != nil {
				// Only a file that may be as good as ever to another reeved, or other parameters.
				var version *storage.VersionError
				var sealer *seal.OtherSealerError
				if !errors.As(err, &version) && !errors.As(err, &sealer) || !strings.Contains(err.Error(), path) {
					t.Errorf("%s: %v", what, err)
				}
				refuses++
				continue
			}
			o := b.open()
			s := b.until(t, what, func(s *clusterv1.StorageStatus) bool { return s.GetState() == isOpen || s.GetProblem() != "" })
			if s.GetState() != isOpen {
				if !strings.Contains(fmt.Sprint(s), path) {
					t.Errorf("%s: the status does not name the file: %v", what, s)
				}
				if _, err := b.unlock(t, recovered); err != nil && status.Code(err) != codes.FailedPrecondition {
					t.Errorf("%s: unlock: %v", what, err)
				}
				unlocks++
			} else {
				opens++
			}
			switch err := o.wait(t); {
			case err != nil:
				t.Errorf("%s: open: %v", what, err)
			case o.opened.Configuration.NodeID() != node || b.disk.formats != 1:
				t.Errorf("%s: another node, or formatted", what)
			}
			// What the cluster's policy says when it is heard again.
			if err := b.room.Allow(t.Context(), nil); err != nil && !strange(name) {
				t.Errorf("%s: allow: %v", what, err)
			}
			// Everything is as it was, or written anew: it opens by itself, and by the newest recovery file.
			b.reboot(t)
			if strange(name) {
				if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, content, 0o400)); err != nil {
					t.Fatal(err)
				}
				b.byRecovery(t)
			} else {
				b.up(t)
			}
		}
	}
	t.Logf("%d opened by themselves, %d by the recovery key, %d are refused by name", opens, unlocks, refuses)
	if opens == 0 || unlocks == 0 {
		t.Error("the test damages nothing")
	}
}

// strange says whether a damage leaves something that is no file. It is not the node's, and is not removed.
func strange(name string) bool { return name == "a directory" || name == "a link to nothing" }
