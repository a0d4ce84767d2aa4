package plugin

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// maxDifference bounds a value that an error shows, in bytes.
const maxDifference = 100

// same returns nil if two manifests are the same byte for byte; otherwise an ErrUnsteady that says where they first differ.
func same(first, second *rolev1.Manifest) error {
	encoding := proto.MarshalOptions{Deterministic: true}
	one, err := encoding.Marshal(first)
	if err != nil {
		return err
	}
	other, err := encoding.Marshal(second)
	if err != nil {
		return err
	}
	if bytes.Equal(one, other) {
		return nil
	}
	where, before, after := difference("", first.ProtoReflect(), second.ProtoReflect())
	if where == "" {
		// Something that this core does not know.
		return fmt.Errorf("%w: it differs in a field that this core does not know", ErrUnsteady)
	}
	return fmt.Errorf("%w: %s was %s, and when it was asked again %s", ErrUnsteady, where, before, after)
}

// difference is the first field in which two messages of one type differ, with what it holds in each.
func difference(prefix string, first, second protoreflect.Message) (where, before, after string) {
	fields := first.Descriptor().Fields()
	for n := range fields.Len() {
		field := fields.Get(n)
		one, other := first.Get(field), second.Get(field)
		path := prefix + string(field.Name())
		switch {
		case one.Equal(other) && first.Has(field) == second.Has(field):
			continue
		case field.IsList():
			if one.List().Len() != other.List().Len() {
				return path, fmt.Sprintf("%d entries long", one.List().Len()), fmt.Sprintf("%d", other.List().Len())
			}
			for i := range one.List().Len() {
				if a, b := one.List().Get(i), other.List().Get(i); !a.Equal(b) {
					return differenceOf(fmt.Sprintf("%s[%d]", path, i), field.Message() != nil, a, b)
				}
			}
		case field.IsMap():
			return path, shown(one), shown(other)
		}
		return differenceOf(path, field.Message() != nil && first.Has(field) && second.Has(field), one, other)
	}
	return "", "", ""
}

func differenceOf(path string, isMessage bool, one, other protoreflect.Value) (where, before, after string) {
	if isMessage {
		if where, before, after = difference(path+".", one.Message(), other.Message()); where != "" {
			return where, before, after
		}
	}
	return path, shown(one), shown(other)
}

func shown(value protoreflect.Value) string {
	return fmt.Sprintf("%q", limits.Clean(limits.Cut(value.String(), maxDifference)))
}
