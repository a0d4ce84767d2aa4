package partialtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// frame is how much is sent at once.
	frame = 16 << 10
	// before is what stands before a message of gRPC: whether it is compressed, and its length.
	before = 5
	// window is how much HTTP/2 takes of a connection, and of a call, before it says more.
	window = 64<<10 - 1
)

// caller is one end of a connection.
type caller struct {
	conn   net.Conn
	framer *http2.Framer
	// initial is the window of a call that begins, of what may be sent on the connection, and on each call.
	initial, all int
	of           map[uint32]int
	answered     bool // a ping was
}

// Calls makes so many calls of a method on a new connection, over which nothing was sent yet. It says that each has a request of some bytes, and sends so many of them. It returns when the server has them all, or why it cannot send
// them, as when the server closes the connection. The calls last as long as the connection.
func Calls(conn net.Conn, method string, calls, request, sent int) error {
	c := &caller{conn: conn, framer: http2.NewFramer(conn, conn), initial: window, all: window, of: make(map[uint32]int)}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	if err := c.framer.WriteSettings(); err != nil {
		return err
	}
	for n := range calls {
		id := uint32(2*n + 1)
		if err := c.begin(id, method); err != nil {
			return err
		}
		message := make([]byte, before+sent)
		binary.BigEndian.PutUint32(message[1:], uint32(request))
		for len(message) > 0 {
			part := min(len(message), frame, c.all, c.of[id])
			if part <= 0 {
				if err := c.hear(); err != nil {
					return err
				}
				continue
			}
			if err := c.framer.WriteData(id, false, message[:part]); err != nil {
				return err
			}
			message, c.all, c.of[id] = message[part:], c.all-part, c.of[id]-part
		}
	}
	// Who answers it has read what was sent before.
	if err := c.framer.WritePing(false, [8]byte{}); err != nil {
		return err
	}
	for !c.answered {
		if err := c.hear(); err != nil {
			return err
		}
	}
	return nil
}

// begin sends the headers of a call.
func (c *caller) begin(id uint32, method string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method}, {Name: ":authority", Value: "test"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		if err := encoder.WriteField(field); err != nil {
			return err
		}
	}
	c.of[id] = c.initial
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
}

// hear takes the next frame of the server.
func (c *caller) hear() error {
	heard, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch heard := heard.(type) {
	case *http2.SettingsFrame:
		if heard.IsAck() {
			return nil
		}
		if initial, set := heard.Value(http2.SettingInitialWindowSize); set {
			for id := range c.of {
				c.of[id] += int(initial) - c.initial
			}
			c.initial = int(initial)
		}
		return c.framer.WriteSettingsAck()
	case *http2.WindowUpdateFrame:
		if heard.StreamID == 0 {
			c.all += int(heard.Increment)
		} else {
			c.of[heard.StreamID] += int(heard.Increment)
		}
	case *http2.PingFrame:
		if !heard.IsAck() {
			return c.framer.WritePing(true, heard.Data)
		}
		c.answered = true
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server ends call %d: %v", heard.StreamID, heard.ErrCode)
	case *http2.GoAwayFrame, *http2.HeadersFrame:
		return fmt.Errorf("the server answers: %v", heard)
	}
	return nil
}
