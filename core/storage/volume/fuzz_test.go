package volume_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// What is taken for a list of mounts has a mount for every line.
func FuzzMounts(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt\\0401 /a\\011b rw,nosuid master:1 - ext3 /dev/root rw\n"))
	f.Add([]byte("36 35 98:0 / / rw - ext4 \\04 rw"))
	f.Add([]byte("x\n\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		mounts, err := volume.ParseMounts(content)
		if err == nil && len(mounts) != len(strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")) && len(content) > 0 {
			t.Errorf("%d mounts of %q", len(mounts), content)
		}
	})
}

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
