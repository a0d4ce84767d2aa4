package store

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// maxDifference bounds a value that an error shows, in bytes.
const maxDifference = 100

// Compare returns nil if two manifests of a plugin are the same, and otherwise an ErrUnsteady that says where they first differ.
func Compare(first, second *rolev1.Manifest) error {
	if proto.Equal(first, second) {
		return nil
	}
	before, after := listFields(first), listFields(second)
	for n, field := range before {
		if n < len(after) && field != after[n] {
			return fmt.Errorf("%w: %s, and when it was asked again %s", ErrUnsteady, field, after[n])
		}
	}
	return fmt.Errorf("%w: it does not always have the same fields", ErrUnsteady)
}

// field is a text, a number or an enum value of a manifest.
type field struct{ path, value string }

func (f field) String() string {
	return fmt.Sprintf("%s was %q", f.path, limits.Clean(limits.Cut(f.value, maxDifference)))
}

// listFields lists the fields of a manifest in their order.
func listFields(m *rolev1.Manifest) (fields []field) {
	_ = protorange.Options{Stable: true}.Range(m.ProtoReflect(), func(at protopath.Values) error {
		switch value := at.Index(-1).Value.Interface().(type) {
		case protoreflect.Message, protoreflect.List, protoreflect.Map:
		default:
			fields = append(fields, field{strings.TrimPrefix(at.Path[1:].String(), "."), fmt.Sprint(value)})
		}
		return nil
	}, nil)
	return fields
}
