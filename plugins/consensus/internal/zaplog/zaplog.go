package zaplog

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// maxText bounds a message and each value of a field, in bytes.
	maxText = 1024
	// maxFields bounds the fields of an entry. etcd's longest, the one that lists its whole configuration, has about 50.
	maxFields = 64
	// Of entries with the same message, the first perSecond of each second are kept and then one of perSecond: what etcd does by default.
	perSecond = 100
)

// New returns a zap logger that writes to log. Entries of level debug are left out whatever log's level is: there etcd writes several for every
// request, with the keys in them, and a role's logger lets everything through for the core to choose from. An entry of level fatal panics in place of ending the process, so that whoever started what
// failed can say so; a panic that nobody recovers ends the process all the same, with its cause on standard error.
func New(log hclog.Logger) *zap.Logger {
	bounded := zapcore.NewSamplerWithOptions(&core{log: log}, time.Second, perSecond, perSecond)
	return zap.New(bounded, zap.WithFatalHook(broken{}), zap.WithPanicHook(broken{}))
}

// broken panics with what an entry says and the error that it was written for: "failed to commit tx" alone does not tell a full disk from a broken one.
type broken struct{}

// OnWrite implements zapcore.CheckWriteHook.
func (broken) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	message := clip(entry.Message)
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			message += ": " + clip(err.Error())
		}
	}
	panic(message)
}

// notHere are messages of etcd that mislead here. The first is about listeners for clients, of which there is none. The second comes at every
// orderly end; when it means something, embed's Err has it too.
var notHere = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"setting up serving from embedded etcd failed.":                                        true,
}

type core struct {
	log    hclog.Logger
	fields []zapcore.Field
}

var _ zapcore.Core = (*core)(nil)

func (c *core) Enabled(level zapcore.Level) bool {
	switch {
	case level <= zapcore.DebugLevel:
		return false
	case level == zapcore.InfoLevel:
		return c.log.IsInfo()
	case level == zapcore.WarnLevel:
		return c.log.IsWarn()
	default:
		return c.log.IsError()
	}
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log, fields: slices.Concat(c.fields, fields)}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && !notHere[entry.Message] {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	message := clip(entry.Message)
	arguments := c.arguments(entry, fields)
	switch {
	case entry.Level <= zapcore.InfoLevel:
		c.log.Info(message, arguments...)
	case entry.Level == zapcore.WarnLevel:
		c.log.Warn(message, arguments...)
	default:
		c.log.Error(message, arguments...)
	}
	return nil
}

func (*core) Sync() error { return nil }

// arguments renders the fields as hclog's pairs, in their order. A field that stands for several values yields all of them.
func (c *core) arguments(entry zapcore.Entry, fields []zapcore.Field) []any {
	all := slices.Concat(c.fields, fields)
	left := 0
	if len(all) > maxFields {
		left = len(all) - maxFields
		all = all[:maxFields]
	}
	arguments := make([]any, 0, 2*len(all)+4)
	if entry.LoggerName != "" {
		arguments = append(arguments, "logger", entry.LoggerName)
	}
	for _, field := range all {
		rendered := zapcore.NewMapObjectEncoder()
		field.AddTo(rendered)
		keys := make([]string, 0, len(rendered.Fields))
		for key := range rendered.Fields {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			arguments = append(arguments, key, value(rendered.Fields[key]))
		}
	}
	if left > 0 {
		arguments = append(arguments, "fields_left_out", left)
	}
	return arguments
}

func value(v any) any {
	switch v := v.(type) {
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return v
	case string:
		return clip(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	default:
		return clip(fmt.Sprint(v))
	}
}

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:maxText], len(text))
}
