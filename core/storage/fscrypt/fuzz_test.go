package fscrypt_test

import (
	"testing"

	"github.com/reeveproject/reeve/core/storage/fscrypt"
)

// Whatever is where a superblock should be, a size that comes out of it can be compared with that of a file.
func FuzzSuperblock(f *testing.F) {
	whole := make([]byte, 1024)
	whole[0x38], whole[0x39], whole[4], whole[0x18], whole[0x62] = 0x53, 0xEF, 1, 2, 1
	f.Add(whole)
	f.Add(whole[:100])
	f.Add([]byte(nil))
	huge := append([]byte(nil), whole...)
	huge[0x60], huge[0x150], huge[0x153] = 0x80, 0xff, 0xff
	f.Add(huge)
	f.Fuzz(func(t *testing.T, content []byte) {
		if found, err := fscrypt.ParseSuperblock(content); err == nil && found.Size <= 0 {
			t.Errorf("size %d", found.Size)
		}
	})
}
