package desired_test

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
)

func FuzzParseState(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x08, 0x01})
	f.Fuzz(func(t *testing.T, content []byte) {
		if state, err := desired.ParseState(content); (err == nil) != (state != nil) {
			t.Fatalf("%x: %v, %v", content, state, err)
		}
	})
}
