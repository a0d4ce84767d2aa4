package output_test

import (
	"encoding/json"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reeveproject/reeve/cli/output"
)

// filled returns a document in which every field has a value that its kind allows.
func filled[D output.Document]() D {
	var document D
	fill(reflect.ValueOf(&document).Elem(), "document")
	return document
}

func fill(value reflect.Value, name string) {
	switch of := value.Interface().(type) {
	case proto.Message:
		message := of.ProtoReflect().New()
		fillMessage(message)
		value.Set(reflect.ValueOf(message.Interface()))
		return
	case time.Time:
		value.Set(reflect.ValueOf(*at(-time.Hour)))
		return
	case json.RawMessage:
		value.Set(reflect.ValueOf(json.RawMessage(`{"` + name + `":true}`)))
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString("a " + name)
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Uint32, reflect.Uint64:
		value.SetUint(7)
	case reflect.Float64:
		value.SetFloat(0.5)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), name)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0), name)
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		inner := reflect.New(value.Type().Elem()).Elem()
		fill(inner, name)
		value.SetMapIndex(reflect.ValueOf("a key"), inner)
	case reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.IsExported() {
				fill(value.Field(i), field.Name)
			}
		}
	}
}

// fillMessage gives every field a value, but for fields that are messages of our own.
func fillMessage(message protoreflect.Message) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		text := protoreflect.ValueOfString("a " + string(field.Name()))
		switch {
		case field.IsMap():
			message.Mutable(field).Map().Set(protoreflect.ValueOfString("a key").MapKey(), text)
		case field.IsList():
			message.Mutable(field).List().Append(text)
		case field.Kind() == protoreflect.StringKind:
			message.Set(field, text)
		case field.Kind() == protoreflect.BytesKind:
			message.Set(field, protoreflect.ValueOfBytes([]byte("key")))
		case field.Kind() == protoreflect.BoolKind:
			message.Set(field, protoreflect.ValueOfBool(true))
		case field.Kind() == protoreflect.EnumKind:
			message.Set(field, protoreflect.ValueOfEnum(1))
		case field.Kind() == protoreflect.Uint64Kind:
			message.Set(field, protoreflect.ValueOfUint64(7))
		case field.Kind() == protoreflect.Uint32Kind:
			message.Set(field, protoreflect.ValueOfUint32(7))
		case field.Kind() == protoreflect.MessageKind:
			message.Set(field, protoreflect.ValueOfMessage(stamp(-time.Hour).ProtoReflect()))
		}
	}
}
