package logline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/logline"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		// hclog, which the SDK uses.
		`{"@level":"warn","@message":"m","@module":"store","@timestamp":"2026-11-28T14:00:00.123456Z","b":"two","a":1}` + "\n": `2026-11-28T14:00:00.123456Z|warn|store|m|a=1|b="two"`,
		// log/slog.
		`{"time":"2026-11-28T15:00:00.5+01:00","level":"INFO","msg":"m","n":{"x":[1]}}`: `2026-11-28T14:00:00.5Z|INFO||m|n={"x":[1]}`,
		// zap.
		`{"level":"error","ts":"2026-11-28T14:00:00Z","logger":"peer","caller":"f.go:1","msg":"m"}`: `2026-11-28T14:00:00Z|error|peer|m|caller="f.go:1"`,
		// A time that is none is a field like any other, and so is a level that is a number.
		`{"msg":"m","ts":1764338400.5,"level":30}`: `0001-01-01T00:00:00Z|||m|level=30|ts=1764338400.5`,
		// Each has one message; the rest are fields.
		`{"@message":"m","msg":"n"}`: `0001-01-01T00:00:00Z|||m|msg="n"`,
		`  {"message":""}  `:         `0001-01-01T00:00:00Z||||`,
	} {
		record, ok := logline.Parse([]byte(line))
		got := fmt.Sprintf("%s|%s|%s|%s|", record.Time.UTC().Format(time.RFC3339Nano), record.Level, record.Module, record.Message)
		for _, field := range record.Fields {
			got += field.Name + "=" + string(field.Value) + "|"
		}
		if want := strings.TrimSuffix(want, "|") + "|"; !ok || strings.TrimRight(got, "|") != strings.TrimRight(want, "|") {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for _, line := range []string{"", "{", "plain", `["msg"]`, `{"msg":5}`, `{"level":"info"}`, `{"msg":"m"}{}`, `{"msg":null}`, `"msg"`, "panic: {}"} {
		if record, ok := logline.Parse([]byte(line)); ok {
			t.Errorf("%q is a record: %+v", line, record)
		}
	}
}

func TestBeginning(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 14, 0, 0, 5000, time.UTC)
	line := logline.Begin("reeve-1/lighthouse/4", at)
	if got := logline.Begins(line); got != "reeve-1/lighthouse/4" {
		t.Errorf("%s begins %q", line, got)
	}
	record, ok := logline.Parse(line)
	if !ok || !record.Time.Equal(at) || len(record.Fields) != 1 || strings.Count(string(line), "\n") != 1 {
		t.Errorf("%s is %+v, %v", line, record, ok)
	}
	for _, other := range []string{"", "the instance begins here", `{"@message":"the instance begins here","@module":"mine","instance":"x"}`, `{"@message":"m: the instance begins here","@module":"reeved","instance":"x"}`} {
		if got := logline.Begins([]byte(other)); got != "" {
			t.Errorf("%q begins %q", other, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"@message":"m","@timestamp":"2026-11-28T14:00:00Z"}`, `{"msg":"m","a":"\u0000\ud800"}`, string(logline.Begin("a/b/1", time.Unix(0, 0)))} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		_, _ = logline.Parse(line)
		_ = logline.Begins(line)
		if string(line) != before {
			t.Error("the line was changed")
		}
	})
}
