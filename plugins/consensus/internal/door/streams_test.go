package door_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestStreamsAreBounded reads the settings with which the server greets a connection (RFC 9113, 6.5).
func TestStreamsAreBounded(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	connection, err := net.Dial("unix", instance.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(storetest.Bound)); err != nil {
		t.Fatal(err)
	}
	const preface, emptySettings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(connection, preface+emptySettings); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, 9)
	if _, err := io.ReadFull(connection, header); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
	if _, err := io.ReadFull(connection, settings); err != nil {
		t.Fatal(err)
	}
	const frameSettings, maxConcurrentStreams = 4, 3
	if header[3] != frameSettings {
		t.Fatalf("the first frame is of type %d", header[3])
	}
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == maxConcurrentStreams {
			if got := binary.BigEndian.Uint32(settings[2:]); got != 256 {
				t.Errorf("%d streams for a connection, want 256", got)
			}
			return
		}
	}
	t.Error("the server sets no bound")
}
