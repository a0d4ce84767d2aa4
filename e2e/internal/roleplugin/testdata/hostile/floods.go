package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// manyStreams opens 10,000 streams on the own host socket and reads none of them. Whether the core can still work is for the test to judge.
func manyStreams(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	var mu sync.Mutex
	opened, refused := 0, ""
	var opening sync.WaitGroup
	for range 20 {
		opening.Go(func() {
			conn, err := dial(a.start.GetHostSocket())
			if err != nil {
				return
			}
			defer conn.Close()
			client := hostv1.NewHostServiceClient(conn)
			for range 500 {
				stream, err := client.WatchDirectory(ctx, &hostv1.WatchDirectoryRequest{})
				if err == nil && opened%100 == 0 {
					_, err = stream.Recv()
				}
				mu.Lock()
				if err == nil {
					opened++
				} else {
					refused = say(err)
				}
				mu.Unlock()
				if err != nil {
					break
				}
			}
			<-ctx.Done()
		})
	}
	opening.Wait()
	a.note(fmt.Sprintf("%d streams", opened), refused)
}

// slowReader asks for much over and over on many connections, and never takes the answers.
func slowReader(a *attempt) {
	var connections []net.Conn
	var err error
	for range 500 {
		var conn net.Conn
		if conn, err = net.Dial("unix", a.start.GetHostSocket()); err != nil {
			break
		}
		connections = append(connections, conn)
		// A window of 2 GiB, so that everything is answered, and pings, each of which is to be answered too.
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff}))
		ping := append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, make([]byte, 8)...)
		for range 100 {
			if _, writeErr := conn.Write(ping); writeErr != nil {
				break
			}
		}
	}
	time.Sleep(time.Second)
	a.note(fmt.Sprintf("%d connections that are never read", len(connections)), fmt.Sprint(err))
	for _, conn := range connections {
		_ = conn.Close()
	}
}

// hostGarbage sends to the own host socket what is no HTTP/2, or wrong HTTP/2.
func hostGarbage(a *attempt) {
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frame := func(kind, flags byte, stream uint32, payload []byte) string {
		n := len(payload)
		return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}) + string(payload)
	}
	var opened strings.Builder
	for n := range uint32(5000) {
		opened.WriteString(frame(1, 4, 2*n+1, []byte{0x83, 0x86, 0x84}) + frame(3, 0, 2*n+1, []byte{0, 0, 0, 8}))
	}
	resets := preface + frame(4, 0, 0, nil) + opened.String()
	continuation := preface + frame(4, 0, 0, nil) + frame(1, 0, 1, []byte{0x83}) + strings.Repeat(frame(9, 0, 1, make([]byte, 1000)), 5000)
	settings := preface + strings.Repeat(frame(4, 0, 0, []byte{0, 3, 0, 0, 0, 1}), 20000)
	for _, c := range []struct{ what, bytes string }{
		{"random bytes", "\x00\xff\x13\x37" + string(make([]byte, 1<<20))},
		{"HTTP/1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"a frame of 16 MiB", preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01"},
		{"5,000 streams opened and reset", resets},
		{"5 MB of CONTINUATION", continuation},
		{"20,000 SETTINGS", settings},
		{"a bomb of headers", preface + frame(4, 0, 0, nil) + frame(1, 4, 1, append([]byte{0x40, 0x7f, 0xff, 0xff, 0xff, 0x07}, make([]byte, 1000)...))},
	} {
		conn, err := net.Dial("unix", a.start.GetHostSocket())
		if err != nil {
			a.note(c.what, say(err))
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, err = io.WriteString(conn, c.bytes)
		n, readErr := io.Copy(io.Discard, conn)
		a.note(c.what, fmt.Sprintf("%v; %d bytes came back, %v", err, n, readErr))
		_ = conn.Close()
	}
}
