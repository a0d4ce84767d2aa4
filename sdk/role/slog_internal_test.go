package role

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/hashicorp/go-hclog"
)

func newSlog(level hclog.Level) (*slog.Logger, *bytes.Buffer) {
	var written bytes.Buffer
	host := &Host{log: hclog.New(&hclog.LoggerOptions{Name: "probe", Level: level, Output: &written, JSONFormat: true})}
	return host.Slog(), &written
}

// The handler keeps slog's rules, as the standard library checks them; groups are dots.
func TestSlogHandler(t *testing.T) {
	var written *bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		if strings.HasSuffix(t.Name(), "/zero-time") {
			t.Skip("it is hclog that says when a line was written")
		}
		var logger *slog.Logger
		logger, written = newSlog(hclog.Debug)
		return logger.Handler()
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(written.Bytes(), &line); err != nil {
			t.Fatalf("%q: %s", written, err)
		}
		result := map[string]any{slog.TimeKey: line["@timestamp"], slog.LevelKey: line["@level"], slog.MessageKey: line["@message"]}
		for key, value := range line {
			if strings.HasPrefix(key, "@") {
				continue
			}
			into, path := result, strings.Split(key, ".")
			for _, group := range path[:len(path)-1] {
				if into[group] == nil {
					into[group] = make(map[string]any)
				}
				into = into[group].(map[string]any)
			}
			into[path[len(path)-1]] = value
		}
		return result
	})
}

func TestSlogLevels(t *testing.T) {
	logger, written := newSlog(hclog.Debug)
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 4: "", slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelInfo + 1: "info",
		slog.LevelWarn: "warn", slog.LevelError: "error", slog.LevelError + 4: "error",
	} {
		written.Reset()
		logger.Log(t.Context(), level, "said")
		if got := written.String(); want == "" && got != "" || want != "" && !strings.Contains(got, `"@level":"`+want+`"`) {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
}

type secret string

func (secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// What hclog would write of a value is what is written of it, and what a type does not show of itself is nowhere.
func TestSlogValues(t *testing.T) {
	logger, written := newSlog(hclog.Debug)
	logger.With("token", secret("hunter2")).WithGroup("door").Info("opened",
		"error", errors.New("it creaks"), "count", 3, "by", secret("hunter2"), slog.Group("at", "x", 1.5))
	for _, want := range []string{
		`"token":"[secret]"`, `"door.error":"it creaks"`, `"door.count":3`, `"door.by":"[secret]"`, `"door.at.x":1.5`, `"@module":"probe"`,
	} {
		if !strings.Contains(written.String(), want) {
			t.Errorf("%s is not in %s", want, written)
		}
	}
	if strings.Contains(written.String(), "hunter2") {
		t.Errorf("the secret is in %s", written)
	}
}
