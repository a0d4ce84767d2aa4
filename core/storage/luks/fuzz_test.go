package luks_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/storage/luks"
)

// Whatever is on a device, it is taken for empty only if it is.
func FuzzSignature(f *testing.F) {
	for _, at := range []int{0, 3, 54, 82, 510, 512, 4086, 4096} {
		for _, signature := range []string{"", "LUKS\xba\xbe\x00\x02", "XFSB", "EFI PART", "SWAPSPACE2", "\x55\xaa"} {
			f.Add([]byte(strings.Repeat("\x00", at)+signature), []byte{0})
		}
	}
	f.Add(make([]byte, 1<<17), []byte("EFI PART"+strings.Repeat("\x00", 504)))
	f.Fuzz(func(t *testing.T, first, last []byte) {
		empty := strings.Trim(string(first)+string(last), "\x00") == ""
		if found := luks.Signature(first, last); empty != (found == "") {
			t.Errorf("empty %v, found %q", empty, found)
		}
	})
}

// Whatever the header is, what is read of it is fit for an error.
func FuzzHeader(f *testing.F) {
	whole := make([]byte, 512)
	copy(whole, "LUKS\xba\xbe\x00\x02")
	copy(whole[24:], "reeve")
	copy(whole[168:], luks.UUID(nodeID))
	f.Add(whole)
	f.Add(whole[:170])
	f.Add([]byte("LUKS\xba\xbe"))
	f.Fuzz(func(t *testing.T, content []byte) {
		header, found := luks.ParseHeader(content)
		if !found && header != (luks.Header{}) || len(header.UUID) > 40*3 || len(header.Label) > 48*3 || strings.Contains(header.UUID+header.Label, "\x00") {
			t.Errorf("%+v, %v", header, found)
		}
	})
}
