package limits_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reeveproject/reeve/proto/limits"
)

// Whatever a text is, it can be made one that a terminal takes for nothing else, of no more than some size.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\x00\x1b[2J\u202eb\xff\u00e4", "\xf0\x9f", strings.Repeat("\u00e4", 9), "\r\n\t"} {
		f.Add(seed, 4)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		clean := limits.Clean(text)
		if !limits.Line(clean) || len(clean) > 5*len(text) {
			t.Errorf("%q became %q", text, clean)
		}
		if limits.Line(text) && clean != text {
			t.Errorf("%q was changed to %q", text, clean)
		}
		size &= 0xff
		cut := limits.Cut(text, size)
		if len(cut) > max(size, 0) && len(text) > size || utf8.ValidString(text) && !utf8.ValidString(cut) {
			t.Errorf("%q was cut at %d to %q", text, size, cut)
		}
	})
}
