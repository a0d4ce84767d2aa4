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
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/logline"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
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

// ask returns what ReadLog sends for a request.
func (a *api) ask(request *nodev1.ReadLogRequest) (string, error) {
	a.t.Helper()
	stream, err := a.client().ReadLog(a.context(), request)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all.String(), nil
		}
		if err != nil {
			return all.String(), err
		}
		all.Write(response.GetData())
	}
}

// instanceLog is what an instance of role "role" of a number writes.
func instanceLog(number int, lines ...string) string {
	id := fmt.Sprintf("reeve-1/role/%d", number)
	return string(logline.Begin(id, time.Unix(int64(number)*1000, 0))) + strings.Join(lines, "\n") + "\n"
}

func TestLogOfAnEarlierInstance(t *testing.T) {
	a := serve(t)
	one, two, three := instanceLog(1, "a", "b"), instanceLog(2, "c"), instanceLog(3, "d", "e")
	for name, test := range map[string]struct {
		log     string
		running int
		tail    uint32
		want    string
	}{
		"the one before":                             {one + two + three, 3, 0, two},
		"the last one, where none runs":              {one + two, 0, 0, two},
		"its last line":                              {one + two, 2, 1, "b\n"},
		"one that wrote before beginnings were told": {"x\ny\n" + two, 2, 0, "x\ny\n"},
		"none":                               {one, 1, 0, ""},
		"none, where the running one floods": {"e\ne\n", 3, 0, ""},
		"none, in an empty log":              {"", 0, 0, ""},
		"the one that is being started":      {one + two + three, 2, 0, three},
	} {
		t.Run(name, func(t *testing.T) {
			a.writeLog("role", test.log)
			instance := &clusterv1.InstanceStatus{Role: "role"}
			if test.running > 0 {
				instance.InstanceId = fmt.Sprintf("reeve-1/role/%d", test.running)
			}
			a.status.Set(&nodev1.Status{NodeId: "reeve-1", Node: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "other"}, instance}}})
			got, err := a.ask(&nodev1.ReadLogRequest{Role: "role", Previous: true, Tail: test.tail})
			if got != test.want || test.want != "" && err != nil || test.want == "" && (status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "earlier instance")) {
				t.Errorf("%q (%v), want %q", got, err, test.want)
			}
		})
	}
	if _, err := a.ask(&nodev1.ReadLogRequest{Role: "role", Previous: true, Follow: true}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("to follow what an earlier instance wrote: %v", err)
	}
}

// recordAt is a record of a time, in seconds.
func recordAt(second int64, message string) string {
	return fmt.Sprintf(`{"@message":%q,"@timestamp":%q}`, message, time.Unix(second, 0).UTC().Format(time.RFC3339)) + "\n"
}

func TestLogSince(t *testing.T) {
	a := serve(t)
	log := "first\n" + recordAt(100, "a") + "of a\n" + recordAt(200, "b") + "of b\n" + recordAt(150, "the clock was set back") + "last"
	a.writeLog("role", log)
	from := func(beginning string) string { return log[strings.Index(log, beginning):] + "\n" }
	for since, want := range map[int64]string{50: from(recordAt(100, "a")), 100: from(recordAt(100, "a")), 101: from(recordAt(200, "b")), 201: ""} {
		for _, tail := range []uint32{0, 1, 2} {
			got, err := a.ask(&nodev1.ReadLogRequest{Role: "role", Since: timestamppb.New(time.Unix(since, 0)), Tail: tail})
			if want := lastLines(want, tail); err != nil || got != want {
				t.Errorf("since %d, tail %d: %q, want %q (%v)", since, tail, got, want, err)
			}
		}
	}
}

// What is written later is sent whatever it says of its time.
func TestLogSinceIsFollowed(t *testing.T) {
	a := serve(t)
	a.writeLog("role", recordAt(100, "a")+recordAt(600, "b"))
	stream, err := a.client().ReadLog(a.context(), &nodev1.ReadLogRequest{Role: "role", Since: timestamppb.New(time.Unix(500, 0)), Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if response, err := stream.Recv(); err != nil || string(response.GetData()) != want {
			t.Fatalf("%q, want %q (%v)", response.GetData(), want, err)
		}
	}
	expect(recordAt(600, "b"))
	file, err := os.OpenFile(filepath.Join(a.dir, "role.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(recordAt(100, "the clock was set back")); err != nil {
		t.Fatal(err)
	}
	expect(recordAt(100, "the clock was set back"))
}
