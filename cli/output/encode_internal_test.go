package output

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestNamesAreFields holds that a field which no document may show is found by its name: one that is renamed would be shown.
func TestNamesAreFields(t *testing.T) {
	for name := range names {
		known(t, name)
	}
	known(t, neverNull)
	known(t, namesOnly)
}

func known(t *testing.T, name protoreflect.FullName) {
	t.Helper()
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if _, ok := descriptor.(protoreflect.FieldDescriptor); err != nil || !ok {
		t.Errorf("%s is no field: %v", name, err)
	}
}

// TestAbsentIsNotAlwaysNull holds what scripts read as a number or a text also where it is absent.
func TestAbsentIsNotAlwaysNull(t *testing.T) {
	for want, document := range map[string]any{
		`"window_seconds":0`:    &clusterv1.InstanceStatus{LastFailure: new(clusterv1.Failure)},
		`"owner_public_key":""`: Operators{},
	} {
		var e encoder
		if err := e.value(reflect.ValueOf(document)); err != nil || !strings.Contains(e.String(), want) {
			t.Errorf("%s, %v: it does not say %s", e.String(), err, want)
		}
	}
}
