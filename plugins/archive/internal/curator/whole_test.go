package curator

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
)

// TestWhole holds that the last byte of a file is given only if all of the file is good: whoever is told how long it is may read no further.
func TestWhole(t *testing.T) {
	payload := bytes.Repeat([]byte("payload"), 1000)
	header := snapshottest.Rehearsed(t, payload)
	file := append(header.Marshal(), payload...)
	read := func(from io.Reader) ([]byte, error) {
		whole, err := newWhole(from, int64(len(file)))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(whole, int64(len(file))))
	}
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(file), "byte by byte": iotest.OneByteReader(bytes.NewReader(file)), "with its end": iotest.DataErrReader(bytes.NewReader(file)),
	} {
		if got, err := read(from); err != nil || !bytes.Equal(got, file) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(file), err)
		}
	}
	for name, from := range map[string]io.Reader{
		"another byte": bytes.NewReader(append(bytes.Clone(file[:len(file)-1]), 'x')),
		"one more":     bytes.NewReader(append(bytes.Clone(file), 'x')),
		"one less":     bytes.NewReader(file[:len(file)-1]),
		"broken off":   io.MultiReader(bytes.NewReader(file[:len(file)-10]), iotest.ErrReader(errors.New("lost"))),
		"no snapshot":  strings.NewReader("hello\n"),
	} {
		if got, err := read(from); err == nil || len(got) >= len(file) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(file), err)
		}
	}
	if _, err := newWhole(bytes.NewReader(file), 10); err == nil || !strings.Contains(err.Error(), "has listed 10") {
		t.Errorf("another size: %v", err)
	}
}
