package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// internal are fields of messages that only the core and the curator use. No document shows them.
var internal = map[protoreflect.FullName]bool{
	"reeve.consensus.v1.StoreStatus.core_start": true, "reeve.consensus.v1.StoreStatus.access_number": true,
	"reeve.consensus.v1.StoreStatus.access": true, "reeve.consensus.v1.StoreStatus.usage": true,
}

// encoder writes a document as JSON in one line. A struct has the names of its tags, a message of the protocol those of its fields. It is not protojson, which writes
// numbers of 64 bits as strings and enum values in capitals: scripts read numbers, and words such as "Ready".
type encoder struct{ bytes.Buffer }

func (e *encoder) value(of reflect.Value) error {
	if message, ok := of.Interface().(proto.Message); ok {
		return e.message(message.ProtoReflect())
	}
	switch of.Kind() {
	case reflect.Pointer, reflect.Interface:
		if of.IsNil() {
			return e.scalar(nil)
		}
		return e.value(of.Elem())
	case reflect.Struct:
		if _, ok := of.Interface().(json.Marshaler); ok {
			return e.scalar(of.Interface())
		}
		return e.object(func(add adder) error { return e.fields(of, add) })
	case reflect.Slice:
		switch of.Interface().(type) {
		case json.RawMessage, []byte: // the latter is base64
			return e.scalar(of.Interface())
		}
		return e.list(of.Len(), func(i int) error { return e.value(of.Index(i)) })
	case reflect.Map:
		if of.IsNil() {
			of = reflect.MakeMap(of.Type())
		}
	}
	return e.scalar(of.Interface())
}

// adder writes a field: its name, and its value by write.
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

// fields are those of a struct. Those of an embedded one are its own.
func (e *encoder) fields(of reflect.Value, add adder) error {
	for i := range of.NumField() {
		field := of.Type().Field(i)
		name := field.Tag.Get("json")
		if name == "-" {
			continue
		}
		write := func() error { return e.value(of.Field(i)) }
		var err error
		if field.Anonymous {
			err = e.fields(of.Field(i), add)
		} else {
			err = add(name, write)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) message(of protoreflect.Message) error {
	if !of.IsValid() {
		return e.scalar(nil)
	}
	return e.object(func(add adder) error {
		fields := of.Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			if internal[field.FullName()] {
				continue
			}
			name := string(field.Name())
			if field.Message() != nil && field.Message().FullName() == "google.protobuf.Duration" {
				name += "_seconds"
			}
			if err := add(name, func() error { return e.field(of, field) }); err != nil {
				return err
			}
		}
		return nil
	})
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
	case field.HasPresence() && !of.Has(field):
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
		}
		return e.message(value.Message())
	}
	return e.scalar(value.Interface())
}
