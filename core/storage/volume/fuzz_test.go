package volume_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// Whatever a process names its files, its mappings and sockets are read without trouble, and what is found was in there.
func FuzzProcess(f *testing.F) {
	f.Add([]byte("00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon\n7f-80 rw-p 00000000 00:00 0\n"))
	f.Add([]byte("Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, file := range volume.ParseMaps(content) {
			if !strings.Contains(string(content), file.Path) {
				t.Errorf("mapped %q", file.Path)
			}
		}
		for inode, path := range volume.ParseUnix(content) {
			if !strings.Contains(string(content), path) || !strings.Contains(string(content), inode) {
				t.Errorf("socket %q: %q", inode, path)
			}
		}
	})
}
