package nodeapi

import (
	"bytes"
	"testing"
)

// Whatever a role writes, and in whatever pieces it comes, it is sent in chunks of whole lines of bounded size.
func FuzzLogLines(f *testing.F) {
	for _, seed := range []string{"", "one\ntwo", "\n\n", "\x00\xff\x1b[2J\n", "no end"} {
		f.Add([]byte(seed), uint16(3), uint32(0))
	}
	f.Add([]byte("after\n"), uint16(1000), uint32(maxLine-1))
	f.Add([]byte("x\nafter\n"), uint16(1), uint32(2*maxLine))
	f.Fuzz(func(t *testing.T, text []byte, piece uint16, before uint32) {
		whole := append(bytes.Repeat([]byte{'b'}, int(before%(3*maxLine))), text...)
		var sent []byte
		s := &lineSender{ctx: t.Context(), send: func(chunk []byte) error {
			if len(chunk) > max(logChunk, maxLine+64) || chunk[len(chunk)-1] != '\n' {
				t.Fatalf("a chunk of %d bytes", len(chunk))
			}
			sent = append(sent, chunk...)
			return nil
		}}
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), 1+int(piece)*16)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, line := range bytes.SplitAfter(whole, []byte{'\n'}) {
			if len(line) == 0 {
				continue
			}
			line = bytes.TrimSuffix(line, []byte{'\n'})
			if len(line) > maxLine {
				return // it is cut, and says so
			}
			want = append(append(want, line...), '\n')
		}
		if !bytes.Equal(sent, want) {
			t.Errorf("%q was sent for %q", sent, whole)
		}
	})
}
