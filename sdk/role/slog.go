package role

import (
	"context"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// Slog is Logger for log/slog: the same lines with the same levels (below slog.LevelDebug is hclog's trace, which is not written). Attributes of a
// group are prefixed with its name and a dot. Types keep secrets out of the log by their LogValue method.
func (h *Host) Slog() *slog.Logger { return slog.New(&slogHandler{log: h.log}) }

// slogHandler writes records to an hclog.Logger.
type slogHandler struct {
	log    hclog.Logger
	prefix string // the names of the open groups, each followed by a dot
	fields []any  // alternating keys and values
}

var _ slog.Handler = (*slogHandler)(nil)

// Enabled implements slog.Handler.
func (h *slogHandler) Enabled(_ context.Context, level slog.Level) bool {
	return levelOf(level) >= h.log.GetLevel()
}

// Handle implements slog.Handler.
func (h *slogHandler) Handle(_ context.Context, record slog.Record) error {
	fields := slices.Clone(h.fields)
	record.Attrs(func(attr slog.Attr) bool {
		fields = appendField(fields, h.prefix, attr)
		return true
	})
	h.log.Log(levelOf(record.Level), record.Message, fields...)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &slogHandler{log: h.log, prefix: h.prefix, fields: slices.Clone(h.fields)}
	for _, attr := range attrs {
		with.fields = appendField(with.fields, h.prefix, attr)
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *slogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &slogHandler{log: h.log, prefix: h.prefix + name + ".", fields: h.fields}
}

func appendField(fields []any, prefix string, attr slog.Attr) []any {
	attr.Value = attr.Value.Resolve()
	switch {
	case attr.Equal(slog.Attr{}):
		return fields
	case attr.Value.Kind() != slog.KindGroup:
		return append(fields, prefix+attr.Key, attr.Value.Any())
	case attr.Key != "":
		prefix += attr.Key + "."
	}
	for _, member := range attr.Value.Group() {
		fields = appendField(fields, prefix, member)
	}
	return fields
}

func levelOf(level slog.Level) hclog.Level {
	switch {
	case level < slog.LevelDebug:
		return hclog.Trace
	case level < slog.LevelInfo:
		return hclog.Debug
	case level < slog.LevelWarn:
		return hclog.Info
	case level < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}
