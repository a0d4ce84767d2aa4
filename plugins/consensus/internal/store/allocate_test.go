package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// The database has the room on the disk that its size says, and a piece more: also after it grew, and after it was rewritten without its holes.
func TestRoomIsTaken(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	path := filepath.Join(directory, "data", "etcd", "member", "snap", "db")
	whole := func(what string, atLeast int64) int64 {
		t.Helper()
		var file unix.Stat_t
		storetest.Eventually(t, "the database to have its room: "+what, func() bool {
			if err := unix.Stat(path, &file); err != nil {
				t.Fatal(err)
			}
			return file.Blocks*512 >= file.Size+16<<20 && file.Size > atLeast
		})
		return file.Size
	}
	before := whole("new", 0)
	root := store.Root(storetest.Context(t))
	value := strings.Repeat("x", 1<<20)
	for i := range before>>20 + 2 {
		if _, err := s.Client().Put(root, "/k"+string(rune('a'+i)), value); err != nil {
			t.Fatal(err)
		}
	}
	whole("grown", before)
	if err := s.Server().Backend().Defrag(); err != nil {
		t.Fatal(err)
	}
	whole("rewritten", 0)
}
