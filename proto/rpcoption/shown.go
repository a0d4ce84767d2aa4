package rpcoption

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// ShownValue is how long a value that Shown returns is at most, in bytes: some digests and their platforms, or a sentence.
	ShownValue = 1024
	// cutMark ends a value that was cut.
	cutMark = "…"
	// maxDepth bounds the messages inside of messages that are looked into.
	maxDepth = 8
)

// Shown returns the fields of a request that an audit log shows, as text by the field's name: those that declare the option shown_in_audit and are set.
// Of a message that is a field, the fields that declare it are shown under both names ("record.name") if the field itself declares it, too. The
// entries of lists and maps are separated by ", ", maps are sorted by key, bytes are in hex, and enums are the names of their values. Values are one line
// (limits.Line) of at most ShownValue bytes, whatever the caller sent. It is nil if there is nothing to show, also for a nil request.
func Shown(request proto.Message) map[string]string {
	if request == nil || !request.ProtoReflect().IsValid() {
		return nil
	}
	collected := make(map[string]*shownValue)
	collect(collected, "", request.ProtoReflect(), maxDepth)
	if len(collected) == 0 {
		return nil
	}
	shown := make(map[string]string, len(collected))
	for name, value := range collected {
		shown[name] = value.text()
	}
	return shown
}

// collect adds the shown fields of a message.
func collect(into map[string]*shownValue, prefix string, message protoreflect.Message, depth int) {
	if depth == 0 {
		return
	}
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !shownInAudit(field) || !message.Has(field) {
			continue
		}
		name := prefix + string(field.Name())
		value := message.Get(field)
		switch {
		case field.IsMap():
			collectMap(into, name, field, value.Map())
		case field.IsList():
			list := value.List()
			for n := range list.Len() {
				collectOne(into, name, field, list.Get(n), depth)
			}
		default:
			collectOne(into, name, field, value, depth)
		}
	}
}

func collectOne(into map[string]*shownValue, name string, field protoreflect.FieldDescriptor, value protoreflect.Value, depth int) {
	if field.Message() != nil {
		collect(into, name+".", value.Message(), depth-1)
		return
	}
	entry(into, name).add(scalar(field, value))
}

// collectMap shows a map whose values are no messages as key=value.
func collectMap(into map[string]*shownValue, name string, field protoreflect.FieldDescriptor, entries protoreflect.Map) {
	if field.MapValue().Message() != nil {
		return
	}
	var texts []string
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		texts = append(texts, limits.Cut(key.String(), ShownValue)+"="+scalar(field.MapValue(), value))
		return true
	})
	slices.Sort(texts)
	for _, text := range texts {
		entry(into, name).add(text)
	}
}

// shownInAudit reports what the field declares.
func shownInAudit(field protoreflect.FieldDescriptor) bool {
	shown, _ := proto.GetExtension(field.Options(), clusterv1.E_ShownInAudit).(bool)
	return shown
}

// scalar is a value as text, of which no more is made than can be shown.
func scalar(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch field.Kind() {
	case protoreflect.BytesKind:
		bytes := value.Bytes()
		return hex.EncodeToString(bytes[:min(len(bytes), ShownValue)])
	case protoreflect.EnumKind:
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			return string(known.Name())
		}
		return strconv.Itoa(int(value.Enum()))
	case protoreflect.StringKind:
		return limits.Cut(value.String(), ShownValue+1)
	default:
		return value.String()
	}
}

// shownValue is the text of a field while it is put together: never much longer than can be shown.
type shownValue struct {
	joined strings.Builder
	any    bool
}

func entry(into map[string]*shownValue, name string) *shownValue {
	value := into[name]
	if value == nil {
		value = &shownValue{}
		into[name] = value
	}
	return value
}

func (v *shownValue) add(text string) {
	if v.joined.Len() > ShownValue {
		return
	}
	if v.any {
		v.joined.WriteString(", ")
	}
	v.any = true
	v.joined.WriteString(text)
}

func (v *shownValue) text() string {
	text := limits.Clean(v.joined.String())
	if len(text) <= ShownValue {
		return text
	}
	return limits.Cut(text, ShownValue-len(cutMark)) + cutMark
}
