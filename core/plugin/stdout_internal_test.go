package plugin

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An event that was read before the last output was closed says nothing of the next one, whose inotify instance numbers its watches from the beginning again.
func TestAnEventOfAClosedInstanceIsOfNoOutput(t *testing.T) {
	var o outputs
	path := filepath.Join(t.TempDir(), "output")
	open := func() *output {
		out, write, err := o.make(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = write.Close() })
		return out
	}
	first := open()
	closed := o.events
	if closed == nil {
		t.Skip("cannot run: this machine gives no inotify instance")
	}
	first.close()
	second := open()
	defer second.close()
	event := func(watch int) []byte {
		var raw [unix.SizeofInotifyEvent]byte
		binary.NativeEndian.PutUint32(raw[:], uint32(watch))
		binary.NativeEndian.PutUint32(raw[4:], unix.IN_CLOSE_WRITE)
		return raw[:]
	}
	o.handleEvents(closed, event(second.watch))
	if second.told {
		t.Error("the second output has ended with the first one")
	}
	o.handleEvents(o.events, event(second.watch))
	if !second.told {
		t.Error("the second output has not ended")
	}
}
