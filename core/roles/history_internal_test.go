package roles

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// SetWriteFile has what is kept of the failures of roles be written in another way.
func SetWriteFile(c *Config, write func(path string, content []byte, mode fs.FileMode) error) {
	c.writeFile = write
}

// FuzzParseHistory feeds the parser whatever may lie on a disk.
func FuzzParseHistory(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dir := f.TempDir()
	c := &Config{FailuresDir: dir, BootID: "boot"}
	h := openHistory(c, "app", hclog.NewNullLogger())
	a := &actor{role: "app"}
	failure := a.failure("node/app/7", "ended by signal 9 (killed): \x1b[31m", nil, []string{"one", "two"})
	for range 3 {
		h.count(proto.CloneOf(failure), "fingerprint", Budget{Failures: 1, Window: time.Hour})
	}
	whole, err := os.ReadFile(filepath.Join(dir, "app.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	for _, seed := range []string{
		"", "{", "null", `{"version":2}`, `{"version":1}`, `{"version":1,"last":null,"givenUp":true}`, `{"version":1,"bootId":"boot","counted":["2999-01-01T00:00:00Z"]}`,
		`{"version":1,"bootId":"other","givenUp":true,"last":{"cause":"x\n\u0000","lines":["1","2","3","4","5","6","7","8","9"],"window":"-1s","time":"0001-01-01T00:00:00Z"}}`,
		`{"version":1,"last":{"cause":5}}`, `{"version":1,"last":{"unknown":[{}]}}`, `{"version":1,"counted":[0]}`, `{"version":1,"last":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := parseHistory(content, "boot", now)
		if err != nil {
			return
		}
		if s.givenUp && s.last == nil {
			t.Error("given up without a reason")
		}
		for n, at := range s.counted {
			if at.After(now) || n > 0 && at.Before(s.counted[n-1]) {
				t.Errorf("counted %v", s.counted)
			}
		}
		if last := s.last; last != nil {
			if !proto.Equal(last, bounded(last)) || !limits.Line(last.GetCause()) || proto.Size(last) > 8<<10 {
				t.Errorf("failure %v", last)
			}
			if last.GetTime() != nil && last.GetTime().CheckValid() != nil || last.GetWindow() != nil && last.GetWindow().CheckValid() != nil {
				t.Errorf("times of %v", last)
			}
		}
		// Whatever was read can be kept, and is then read as the same.
		again := &history{path: filepath.Join(t.TempDir(), "app.json"), boot: "boot", writeFile: storage.WriteFile, log: hclog.NewNullLogger()}
		if err := again.keep(s); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		kept, err := os.ReadFile(again.path)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseHistory(kept, "boot", now)
		if err != nil || back.givenUp != s.givenUp || back.print != s.print || len(back.counted) != len(s.counted) || !proto.Equal(back.last, s.last) {
			t.Errorf("%+v became %+v: %v", s, back, err)
		}
	})
}

func TestKeptHistoryIsRead(t *testing.T) {
	c := &Config{FailuresDir: t.TempDir(), BootID: "boot"}
	h := openHistory(c, "app", hclog.NewNullLogger())
	shown, spent := h.count(&clusterv1.Failure{Cause: "x"}, "f", Budget{Window: time.Hour})
	if !spent || shown.GetFailures() != 1 {
		t.Errorf("%v, %v", shown, spent)
	}
	content, err := os.ReadFile(filepath.Join(c.FailuresDir, "app.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(content, &file); err != nil || file["version"] != 1.0 || file["bootId"] != "boot" || file["givenUp"] != true {
		t.Errorf("file %s: %v", content, err)
	}
	info, err := os.Stat(filepath.Join(c.FailuresDir, "app.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if again := openHistory(c, "app", hclog.NewNullLogger()); !again.gaveUp("f") || again.gaveUp("g") || again.gaveUp("f") {
		t.Error("what was given up is not what is wanted any more, or again")
	}
	// Names that could lead out of the directory are not kept.
	if openHistory(c, "../app", hclog.NewNullLogger()).path != "" {
		t.Error("kept outside of its directory")
	}
}
