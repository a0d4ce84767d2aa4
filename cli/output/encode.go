package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// names are fields of messages that documents name otherwise. One without a name is shown by no document: only the core and the curator use it, or the document has its own.
var names = map[protoreflect.FullName]string{
	"reeve.cluster.v1.Certificate.not_before": "begins", "reeve.cluster.v1.Certificate.not_after": "ends",
	"reeve.node.v1.GetRoleResponse.status": "instance", "reeve.node.v1.GetRoleResponse.grants": "granted", "reeve.cluster.v1.PluginVersion.manifest": "",
	"reeve.cluster.v1.PluginRecord.manifest": "", "reeve.cluster.v1.PluginRecord.grants": "", "reeve.cluster.v1.PluginRecord.decided": "", "reeve.cluster.v1.PluginRecord.waiting": "",
	"reeve.cluster.v1.PluginRecord.previous": "", "reeve.cluster.v1.PluginRecord.reports": "",
	"reeve.cluster.v1.ConformanceReport.signer_key": "signed_by", "reeve.cluster.v1.ConformanceReport.profiles": "verdicts", "reeve.cluster.v1.ConformanceReport.sha256": "",
	"reeve.consensus.v1.StoreStatus.core_start": "", "reeve.consensus.v1.StoreStatus.access_number": "", "reeve.consensus.v1.StoreStatus.access": "",
	"reeve.consensus.v1.StoreStatus.usage": "", "reeve.cluster.v1.Registration.ticket_created_by": "", "reeve.cluster.v1.Registration.ticket_made_by": "",
	"reeve.cluster.v1.ListCertificatesResponse.next": "",
}

// neverNull is a field that scripts read as 0 where it is absent.
const neverNull protoreflect.FullName = "reeve.cluster.v1.Failure.window"

// namesOnly is a list of roles that a document shows by their names.
const namesOnly protoreflect.FullName = "reeve.cluster.v1.Registration.roles"

// computed are fields that a document shows of a message and that the message does not have.
var computed = map[protoreflect.FullName]struct {
	name string
	of   func(proto.Message) any
}{
	"reeve.role.v1.Grant": {"meaning", func(grant proto.Message) any { return Explain(grant.(*rolev1.Grant)) }},
}

// encoder writes a document as JSON in one line. It names the fields of a struct by their tags, and those of a message by their names in the protocol. protojson would write
// 64-bit numbers as strings and enum values in capitals. Scripts read numbers, and words such as "Ready".
type encoder struct{ bytes.Buffer }

func (e *encoder) value(of reflect.Value) error {
	switch of.Kind() {
	case reflect.Pointer, reflect.Interface:
		if of.IsNil() {
			return e.scalar(nil)
		}
		if message, ok := asMessage(of); ok {
			return e.message(message)
		}
		return e.value(of.Elem())
	case reflect.Struct:
		if _, ok := of.Interface().(json.Marshaler); ok {
			return e.scalar(of.Interface())
		}
		return e.object(func(add adder) error { return e.fields(of, add) })
	case reflect.Slice:
		switch of := of.Interface().(type) {
		case json.RawMessage:
			return e.scalar(of)
		case []byte:
			return e.scalar(base64.StdEncoding.EncodeToString(of))
		}
		return e.list(of.Len(), func(i int) error { return e.value(of.Index(i)) })
	case reflect.Map:
		if of.IsNil() {
			of = reflect.MakeMap(of.Type())
		}
	}
	return e.scalar(of.Interface())
}

// adder writes a field. write writes its value.
type adder func(name string, write func() error) error

func (e *encoder) object(fields func(adder) error) error {
	separator := byte('{')
	err := fields(func(name string, write func() error) error {
		e.WriteByte(separator)
		separator = ','
		if err := e.scalar(name); err != nil {
			return err
		}
		e.WriteByte(':')
		return write()
	})
	if separator == '{' {
		e.WriteByte(separator)
	}
	e.WriteByte('}')
	return err
}

func (e *encoder) list(length int, write func(int) error) error {
	e.WriteByte('[')
	for i := range length {
		if i > 0 {
			e.WriteByte(',')
		}
		if err := write(i); err != nil {
			return err
		}
	}
	e.WriteByte(']')
	return nil
}

func (e *encoder) scalar(value any) error {
	plain := json.NewEncoder(e)
	plain.SetEscapeHTML(false)
	err := plain.Encode(value)
	e.Truncate(len(bytes.TrimSuffix(e.Bytes(), []byte("\n"))))
	return err
}

// fields adds the fields of a struct. Fields of an embedded struct or message count as its own.
func (e *encoder) fields(of reflect.Value, add adder) error {
	for i := range of.NumField() {
		field := of.Type().Field(i)
		name := field.Tag.Get("json")
		if name == "-" {
			continue
		}
		var err error
		message, embedded := asMessage(of.Field(i))
		switch {
		case field.Anonymous && embedded:
			err = e.messageFields(message, add)
		case field.Anonymous:
			err = e.fields(of.Field(i), add)
		default:
			err = add(name, func() error { return e.value(of.Field(i)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asMessage returns a value that is a message. A struct, or a pointer to one, also has the methods of a message that is embedded in it, and is none.
func asMessage(of reflect.Value) (protoreflect.Message, bool) {
	message, ok := of.Interface().(proto.Message)
	if !ok || of.Kind() != reflect.Pointer || slices.ContainsFunc(reflect.VisibleFields(of.Type().Elem()), func(field reflect.StructField) bool { return field.Anonymous }) {
		return nil, false
	}
	return message.ProtoReflect(), true
}

func (e *encoder) message(of protoreflect.Message) error {
	if !of.IsValid() {
		return e.scalar(nil)
	}
	return e.object(func(add adder) error { return e.messageFields(of, add) })
}

func (e *encoder) messageFields(of protoreflect.Message, add adder) error {
	fields := of.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name, named := names[field.FullName()]
		if named && name == "" {
			continue
		}
		if !named {
			name = string(field.Name())
		}
		if field.Message() != nil && field.Message().FullName() == "google.protobuf.Duration" {
			name += "_seconds"
		}
		if err := add(name, func() error { return e.field(of, field) }); err != nil {
			return err
		}
	}
	if more, ok := computed[of.Descriptor().FullName()]; ok {
		return add(more.name, func() error { return e.scalar(more.of(of.Interface())) })
	}
	return nil
}

func (e *encoder) field(of protoreflect.Message, field protoreflect.FieldDescriptor) error {
	value := of.Get(field)
	switch {
	case field.IsMap():
		entries := make(map[string]any)
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			entries[key.String()] = entry.Interface()
			return true
		})
		return e.scalar(entries)
	case field.IsList():
		return e.list(value.List().Len(), func(i int) error { return e.single(field, value.List().Get(i)) })
	case field.HasPresence() && !of.Has(field) && field.FullName() != neverNull:
		return e.scalar(nil)
	}
	return e.single(field, value)
}

func (e *encoder) single(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch field.Kind() {
	case protoreflect.EnumKind:
		return e.scalar(word(field.Enum(), value.Enum()))
	case protoreflect.BytesKind:
		return e.scalar(base64.StdEncoding.EncodeToString(value.Bytes()))
	case protoreflect.MessageKind:
		switch of := value.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			return e.scalar(moment(of))
		case *durationpb.Duration:
			return e.scalar(of.AsDuration().Seconds())
		case *clusterv1.RoleAssignment:
			if field.FullName() == namesOnly {
				return e.scalar(of.GetRole())
			}
		}
		return e.message(value.Message())
	}
	return e.scalar(value.Interface())
}
