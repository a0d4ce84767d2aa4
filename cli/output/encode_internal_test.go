package output

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestNamesAreFields holds that a field which no document may show is found by its name: one that is renamed would be shown.
func TestNamesAreFields(t *testing.T) {
	for name := range names {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if _, ok := descriptor.(protoreflect.FieldDescriptor); err != nil || !ok {
			t.Errorf("%s is no field: %v", name, err)
		}
	}
}
