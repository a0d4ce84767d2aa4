package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// lie is a role that does not keep to the protocol. What is nil is done properly.
type lie struct {
	role, summary string
	// handshake is what it prints in place of its handshake line; %s is the path of its socket.
	handshake func(path string)
	start     func(context.Context) (*rolev1.StartResponse, error)
	watch     func(*plugin, grpc.ServerStreamingServer[rolev1.WatchResponse]) error
	stop      func(context.Context) (*rolev1.StopResponse, error)
	health    func(context.Context) (*rolev1.CheckHealthResponse, error)
	metrics   func(context.Context) (*rolev1.GetMetricsResponse, error)
	run       func(*plugin)
}

func lieOf(role string) *lie {
	for i := range lies {
		if lies[i].role == role {
			return &lies[i]
		}
	}
	return nil
}

// misbehaveAtHandshake returns whether the role was one that does not come further.
func misbehaveAtHandshake(role, path string) bool {
	l := lieOf(role)
	if l == nil || l.handshake == nil {
		return false
	}
	l.handshake(path)
	time.Sleep(30 * time.Second)
	return true
}

func forever(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(20 * time.Second) // longer than anybody waits
	return ctx.Err()
}

func flooding(make func(*plugin, int) *rolev1.WatchResponse) func(*plugin, grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	return func(p *plugin, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
		deadline := time.Now().Add(6 * time.Second)
		for n := 0; ; n++ {
			if time.Now().After(deadline) {
				time.Sleep(100 * time.Millisecond)
			}
			if err := stream.Send(make(p, n)); err != nil {
				return err
			}
		}
	}
}

// values and endpoints are so many of the largest that there may be, others each time.
func values(count, n int) map[string]string {
	all := make(map[string]string)
	for i := range count {
		all[fmt.Sprint(i)] = strings.Repeat(string(rune('a'+n%26)), 4096)
	}
	return all
}

func endpoints(count, n int) (all []*rolev1.Endpoint) {
	for i := range count {
		all = append(all, &rolev1.Endpoint{Name: fmt.Sprint(i), Address: strings.Repeat(string(rune('a'+n%26)), 512)})
	}
	return all
}

var lies = []lie{
	{role: "hs-binary", summary: "Prints bytes", handshake: func(string) { _, _ = os.Stdout.Write(append(bytes.Repeat([]byte{0, 0xff, '|'}, 1000), '\n')) }},
	{role: "hs-endless", summary: "Prints a line that has no end", handshake: func(string) {
		block := bytes.Repeat([]byte("1|"), 1<<19)
		for range 200 {
			if _, err := os.Stdout.Write(block); err != nil {
				return
			}
		}
	}},
	{role: "hs-silent", summary: "Prints nothing", handshake: func(string) {}},
	{role: "hs-numbers", summary: "Prints numbers that are none", handshake: func(path string) {
		fmt.Printf("99999999999999999999|-1|unix|%s|grpc|%s|true\n", path, strings.Repeat("A", 3000))
	}},
	{role: "hs-network", summary: "Has the core connect to an address of its choice", handshake: func(string) {
		fmt.Print("1|1|tcp|127.0.0.1:22|grpc|\n")
	}},
	{role: "hs-elsewhere", summary: "Has the core connect to a socket of its choice", handshake: func(path string) {
		fmt.Printf("1|1|unix|%s/../../../node.sock|grpc|\n", path[:strings.LastIndex(path, "/")])
	}},
	{role: "hs-link", summary: "Has the core connect to a link", handshake: func(path string) {
		_ = os.Symlink("../../node.sock", path)
		fmt.Printf("1|1|unix|%s|grpc|\n", path)
	}},
	{role: "hs-newlines", summary: "Prints escapes and newlines", handshake: func(path string) {
		fmt.Printf("1|1|unix|%s\x1b[2J\r|grpc|\n\n\n", path)
	}},
	{role: "hs-garbage", summary: "Serves no HTTP/2", handshake: func(path string) { serveBytes(path, bytes.Repeat([]byte{0xff}, 1<<20)) }},
	{role: "hs-frames", summary: "Serves broken HTTP/2", handshake: func(path string) {
		// SETTINGS, a huge frame, GOAWAY, pings.
		serveBytes(path, append([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}, bytes.Repeat([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 50000)...))
	}},
	{role: "hs-hole", summary: "Takes connections and never answers", handshake: func(path string) { serveBytes(path, nil) }},

	{role: "rp-start", summary: "Never answers Start", start: func(ctx context.Context) (*rolev1.StartResponse, error) { return nil, forever(ctx) }},
	{role: "rp-problems", summary: "Refuses its configuration with 100,000 problems", start: func(context.Context) (*rolev1.StartResponse, error) {
		s := status.New(codes.InvalidArgument, strings.Repeat("no\x1b[31m", 100000))
		return nil, s.Err()
	}},
	{role: "st-flood", summary: "Floods the core with status", watch: flooding(func(p *plugin, n int) *rolev1.WatchResponse {
		s := p.status()
		s.State = rolev1.RoleState(2 + n%2)
		s.Reason = fmt.Sprint(n)
		s.Values = values(5, n)
		s.Endpoints = endpoints(16, n)
		return s
	})},
	{role: "st-large", summary: "States 32 endpoints of 512 bytes and 32 values of 4 KiB over and over", watch: flooding(func(p *plugin, n int) *rolev1.WatchResponse {
		s := p.status()
		s.Values = values(32, n)
		s.Endpoints = endpoints(32, n)
		return s
	})},
	{role: "st-huge", summary: "States a reason of 32 MiB", watch: flooding(func(p *plugin, _ int) *rolev1.WatchResponse {
		s := p.status()
		s.Reason = strings.Repeat("x", 32<<20)
		return s
	})},
	{role: "st-many", summary: "States 10,000 endpoints and values", watch: flooding(func(p *plugin, _ int) *rolev1.WatchResponse {
		s := p.status()
		s.Values = make(map[string]string)
		for i := range 10000 {
			s.Endpoints = append(s.Endpoints, &rolev1.Endpoint{Name: fmt.Sprint(i), Address: "x"})
			s.Values[fmt.Sprint(i)] = "x"
		}
		return s
	})},
	{role: "st-other", summary: "States the status of another role", watch: flooding(func(p *plugin, _ int) *rolev1.WatchResponse {
		s := p.status()
		s.Role, s.InstanceId = "victim", strings.Replace(s.InstanceId, "st-other", "victim", 1)
		s.State, s.Reason = rolev1.RoleState_ROLE_STATE_FAILED, "the victim has failed"
		return s
	})},
	{role: "st-states", summary: "States what there is not, in escapes", watch: flooding(func(p *plugin, _ int) *rolev1.WatchResponse {
		s := p.status()
		s.State, s.Reason = rolev1.RoleState(4711), "\x1b]0;owned\x07\x1b[2J\r\n\u202e"
		s.Endpoints = []*rolev1.Endpoint{{Name: "http\n", Address: "\x00\x1b[31m"}}
		return s
	})},
	{role: "st-wire", summary: "Answers with bytes that are no message", watch: func(_ *plugin, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
		for range 100 {
			if err := stream.SendMsg(raw(bytes.Repeat([]byte{0xff}, 1000))); err != nil {
				return err
			}
		}
		return nil
	}},
	{role: "hl-never", summary: "Never answers CheckHealth", health: func(ctx context.Context) (*rolev1.CheckHealthResponse, error) { return nil, forever(ctx) }},
	{role: "hl-text", summary: "Says in 1 MiB that it is not well", health: func(context.Context) (*rolev1.CheckHealthResponse, error) {
		return nil, status.Error(codes.Internal, strings.Repeat("\x1b[31mill ", 1<<17))
	}},
	{role: "mt-huge", summary: "Has 64 MiB of metrics", metrics: func(context.Context) (*rolev1.GetMetricsResponse, error) {
		return &rolev1.GetMetricsResponse{Text: bytes.Repeat([]byte("x 1\n"), 16<<20)}, nil
	}},
	{role: "mt-slow", summary: "Never answers GetMetrics", metrics: func(ctx context.Context) (*rolev1.GetMetricsResponse, error) { return nil, forever(ctx) }},
	{role: "mt-wrong", summary: "Has metrics that are none, and those of others", metrics: func(context.Context) (*rolev1.GetMetricsResponse, error) {
		return &rolev1.GetMetricsResponse{Text: []byte("# TYPE a counter\na{role=\"victim\",instance=\"x\"} NaN\nreeve_role_state{role=\"victim\"} 0\nb{x=\"\xff\"} 1\n{} {} {}\n" +
			strings.Repeat("c{d=\"e\"} 1e999999\n", 10000))}, nil
	}},
	{role: "mt-many", summary: "Has 40,000 series", metrics: func(context.Context) (*rolev1.GetMetricsResponse, error) {
		var text bytes.Buffer
		for n := range 40000 {
			_, _ = fmt.Fprintf(&text, "s{n=\"%d\"} 1\n", n)
		}
		return &rolev1.GetMetricsResponse{Text: text.Bytes()[:min(text.Len(), 1<<20)]}, nil
	}},
	{role: "lg-message", summary: "Logs what panics go-plugin's parser", run: func(*plugin) {
		for range 100 {
			_, _ = io.WriteString(os.Stderr, `{"@message": 5}`+"\n"+`{"@level":{},"@message":null,"@timestamp":1e400}`+"\n{\"@message\":\"\\ud800\"}\n"+
				strings.Repeat(`{"a":`, 10000)+"\n[\n\x00\xff\xfe\x1b[2J\r\n")
		}
	}},
	{role: "lg-endless", summary: "Logs a line of 256 MiB", run: func(*plugin) {
		block := bytes.Repeat([]byte("x"), 1<<20)
		for range 256 {
			if _, err := os.Stderr.Write(block); err != nil {
				return
			}
		}
	}},
	{role: "lg-cut", summary: "Cuts, holes and rewinds its log", run: func(*plugin) {
		for range 100 {
			_ = os.Stderr.Truncate(0)
			_, _ = os.Stderr.Seek(1<<30, io.SeekStart)
			_, _ = os.Stderr.WriteString("after a hole\n")
			time.Sleep(10 * time.Millisecond)
		}
		_ = os.Stderr.Truncate(8 << 40)
	}},
}

// serveBytes serves bytes to whoever connects, and then nothing.
func serveBytes(path string, content []byte) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return
	}
	_ = os.Chmod(path, 0o770)
	fmt.Printf("1|1|unix|%s|grpc|\n", path)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = conn.Write(content)
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
}

// raw are bytes that are sent as they are.
type raw []byte

// codec is protobuf's, but for raw bytes.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if bytes, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (p *plugin) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}), grpc.MaxSendMsgSize(1 << 30)}
}
