package nodeapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// readLog returns what ReadLog sends, and checks that every message is of whole lines and not larger than it may be.
func (a *api) readLog(client nodev1.NodeServiceClient, role string, tail uint32) (string, error) {
	a.t.Helper()
	stream, err := client.ReadLog(a.context(), &nodev1.ReadLogRequest{Role: role, Tail: tail})
	if err != nil {
		return "", err
	}
	var all bytes.Buffer
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all.String(), nil
		}
		if err != nil {
			return all.String(), err
		}
		data := response.GetData()
		if len(data) == 0 || data[len(data)-1] != '\n' {
			a.t.Errorf("a message of %d bytes does not end with a line", len(data))
		}
		if len(data) > 64<<10 && bytes.Count(data, []byte{'\n'}) > 1 {
			a.t.Errorf("a message has %d bytes", len(data))
		}
		all.Write(data)
	}
}

func (a *api) writeLog(role, content string) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, role+".log"), []byte(content), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// lastLines is what a tail should be.
func lastLines(content string, tail uint32) string {
	if content != "" && !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	lines := strings.SplitAfter(content, "\n")
	lines = lines[:len(lines)-1]
	if tail > 0 && int(tail) < len(lines) {
		lines = lines[len(lines)-int(tail):]
	}
	return strings.Join(lines, "")
}

func TestLogs(t *testing.T) {
	a := serve(t)
	client := a.client()
	long := strings.Repeat("x", 64<<10-1) + "\n"
	for name, content := range map[string]string{
		"empty":                     "",
		"one line":                  "one\n",
		"one line without an end":   "one",
		"an empty line":             "\n",
		"empty lines":               "\n\n\n",
		"two lines":                 "one\ntwo\n",
		"the last without an end":   "one\ntwo\nthree",
		"lines as long as a block":  long + long + long,
		"a block and a little":      long + "x\n" + long,
		"a long line":               "first\n" + strings.Repeat("y", 200_000) + "\nlast\n",
		"a long line without end":   "first\n" + strings.Repeat("y", 200_000),
		"many lines":                strings.Repeat("a line of the log\n", 20_000),
		"zeros and other strangers": "\x00\xff\n\r\n\xfe",
	} {
		a.writeLog("role", content)
		for _, tail := range []uint32{0, 1, 2, 3, 5000, 1 << 31} {
			got, err := a.readLog(client, "role", tail)
			if want := lastLines(content, tail); err != nil || got != want {
				t.Errorf("%s, tail %d: %d bytes, want %d; %v", name, tail, len(got), len(want), err)
			}
		}
	}
}

func TestLogsOfAnyShape(t *testing.T) {
	a := serve(t)
	client := a.client()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 100 {
		var content strings.Builder
		for range random.IntN(60) {
			content.WriteString(strings.Repeat("z", random.IntN(1<<random.IntN(16))))
			content.WriteString(strings.Repeat("\n", random.IntN(3)))
		}
		tail := uint32(random.IntN(50))
		a.writeLog("role", content.String())
		got, err := a.readLog(client, "role", tail)
		if want := lastLines(content.String(), tail); err != nil || got != want {
			t.Fatalf("round %d, tail %d of %d bytes: %d bytes, want %d; %v", round, tail, content.Len(), len(got), len(want), err)
		}
	}
}

func TestALineThatIsTooLongIsCut(t *testing.T) {
	a := serve(t)
	a.writeLog("role", "first\n"+strings.Repeat("y", 10<<20)+"\nlast\n")
	got, err := a.readLog(a.client(), "role", 2)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("y", 256<<10) + fmt.Sprintf(" [%d more bytes]\nlast\n", 10<<20-256<<10)
	if got != want {
		t.Errorf("%d bytes, want %d, ending with %q", len(got), len(want), got[max(0, len(got)-60):])
	}
}

func TestLogsThatAreNotThere(t *testing.T) {
	a := serve(t)
	client := a.client()
	if err := os.Symlink("/etc/passwd", filepath.Join(a.dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a.dir, "directory.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		role string
		code codes.Code
		says string
	}{
		{"unknown", codes.NotFound, "reeve status"},
		{"never-ran", codes.NotFound, "reeve status"},
		{"", codes.InvalidArgument, "not the name of a role"},
		{"../../etc/passwd", codes.InvalidArgument, "not the name of a role"},
		{"link", codes.Internal, "log of role link"},
		{"directory", codes.Internal, "not a regular file"},
	} {
		got, err := a.readLog(client, test.role, 0)
		if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) || got != "" {
			t.Errorf("%q: %q, %v", test.role, got, err)
		}
	}
}
