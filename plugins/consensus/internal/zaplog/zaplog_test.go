package zaplog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// lines logs and returns what hclog wrote, a map a line.
func lines(t *testing.T, level hclog.Level, log func(*zap.Logger)) []map[string]any {
	t.Helper()
	var output bytes.Buffer
	log(zaplog.New(hclog.New(&hclog.LoggerOptions{Output: &output, JSONFormat: true, Level: level})))
	var all []map[string]any
	for line := range strings.Lines(output.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, entry)
	}
	return all
}

func TestLevels(t *testing.T) {
	write := func(log *zap.Logger) {
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
	}
	for level, want := range map[hclog.Level]string{
		hclog.Trace: "info i,warn w,error e",
		hclog.Debug: "info i,warn w,error e",
		hclog.Info:  "info i,warn w,error e",
		hclog.Warn:  "warn w,error e",
		hclog.Error: "error e",
		hclog.Off:   "",
	} {
		var got []string
		for _, entry := range lines(t, level, write) {
			got = append(got, entry["@level"].(string)+" "+entry["@message"].(string))
		}
		if strings.Join(got, ",") != want {
			t.Errorf("at level %s: %v, want %s", level, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	got := lines(t, hclog.Info, func(log *zap.Logger) {
		log.Named("raft").With(zap.String("member", "m")).Info("hello",
			zap.Int("n", 7), zap.Bool("yes", true), zap.Duration("took", time.Second), zap.Error(errors.New("broken")), zap.Strings("list", []string{"a", "b"}))
	})
	if len(got) != 1 {
		t.Fatalf("%d lines", len(got))
	}
	for key, want := range map[string]any{
		"@message": "hello", "logger": "raft", "member": "m", "n": 7.0, "yes": true, "took": "1s", "error": "broken", "list": "[a b]",
	} {
		if got[0][key] != want {
			t.Errorf("%s is %v, want %v", key, got[0][key], want)
		}
	}
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	fields := make([]zap.Field, 1000)
	for n := range fields {
		fields[n] = zap.String("k"+strings.Repeat("k", n%7)+string(rune('a'+n%26)), long)
	}
	var output bytes.Buffer
	log := zaplog.New(hclog.New(&hclog.LoggerOptions{Output: &output, JSONFormat: true}))
	log.Info(long, fields...)
	if output.Len() > 128<<10 {
		t.Errorf("one entry became %d bytes", output.Len())
	}
	if !strings.Contains(output.String(), `"fields_left_out":936`) {
		t.Error("the entry does not say that fields were left out")
	}

	got := lines(t, hclog.Info, func(log *zap.Logger) {
		for range 10_000 {
			log.Info("again and again")
		}
	})
	// A hundred of each second, and one of a hundred beyond; the loop may touch several seconds on a busy machine.
	if len(got) < 100 || len(got) > 5000 {
		t.Errorf("of 10000 equal entries %d were kept", len(got))
	}
}

func TestFatalPanics(t *testing.T) {
	log := zaplog.New(hclog.NewNullLogger())
	for level, write := range map[string]func(string, ...zap.Field){"fatal": log.Fatal, "panic": log.Panic} {
		func() {
			defer func() {
				// Why, too, or a full disk looks like a broken store.
				if got := recover(); got != "no way on: the disk is full" {
					t.Errorf("an entry of level %s ended with %v", level, got)
				}
			}()
			write("no way on", zap.String("path", "/p"), zap.Error(errors.New("the disk is full")))
		}()
	}
}
