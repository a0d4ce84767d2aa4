package storage_test

import (
	"errors"
	"os"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
)

// Whatever the volume file holds, the volume is opened only if it is this node's, and the file stays as it is.
func FuzzVolume(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"kind":"plain","cluster_id":"c1","node_id":"n1"}`, `{"version":1,"kind":"plain","cluster_id":"c2","node_id":"n1"}`,
		`{"version":2}`, `{"version":1,"shape":"round"}`, `{"version":1,"kind`, "", "null", "[]", "\x00\xff",
	} {
		f.Add([]byte(seed))
	}
	s := &storage.Storage{Layout: storage.Layout{Data: f.TempDir()}}
	mine := storage.Volume{Kind: storage.Plain, ClusterID: "c1", NodeID: "n1"}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(s.Volume(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		var problem *storage.VolumeError
		if err := s.OpenVolume(mine, true); err != nil && !errors.As(err, &problem) {
			t.Errorf("error %v", err)
		}
		if now, err := os.ReadFile(s.Volume()); err != nil || string(now) != string(content) {
			t.Errorf("the file was changed: %q, %v", now, err)
		}
	})
}
