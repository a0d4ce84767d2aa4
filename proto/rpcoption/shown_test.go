package rpcoption_test

import (
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

func TestShown(t *testing.T) {
	const secret = "do-not-show-this"
	long := strings.Repeat("x", 2*rpcoption.ShownValue)
	for name, test := range map[string]struct {
		request proto.Message
		want    map[string]string
	}{
		"nothing":         {nil, nil},
		"no message":      {(*clusterv1.AddRoleRequest)(nil), nil},
		"nothing set":     {&clusterv1.AddRoleRequest{}, nil},
		"nothing to show": {&nodev1.ImportPluginRequest{Data: []byte(secret)}, nil},
		"a configuration is not shown": {
			&clusterv1.AddRoleRequest{NodeId: "reeve-1", Role: "lighthouse", Configuration: secret, DryRun: true},
			map[string]string{"node_id": "reeve-1", "role": "lighthouse", "dry_run": "true"},
		},
		"a number, and no lists of messages": {
			&clusterv1.SetRolesRequest{NodeId: "n", ExpectedGeneration: 7, Roles: []*clusterv1.RoleAssignment{{Role: "r", Configuration: secret}}},
			map[string]string{"node_id": "n", "expected_generation": "7"},
		},
		"a map is sorted": {
			&clusterv1.AddPluginRequest{
				Manifest: &rolev1.Manifest{Name: secret},
				Digests:  map[string]string{"linux/arm64": "sha256:02", "linux/amd64": "sha256:01"},
			},
			map[string]string{"digests": "linux/amd64=sha256:01, linux/arm64=sha256:02"},
		},
		"the name of an enum": {
			&clusterv1.AddOperatorRequest{Name: "alice", Role: clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER, PublicKey: []byte(secret)},
			map[string]string{"name": "alice", "role": "OPERATOR_ROLE_VIEWER"},
		},
		"an enum of the future": {&clusterv1.AddOperatorRequest{Role: 99}, map[string]string{"role": "99"}},
		"controls":              {&nodev1.RestartRoleRequest{Role: "a\n\x1b[2J\u202eb"}, map[string]string{"role": `a\n\x1b[2J\u202eb`}},
		"a long text":           {&nodev1.RestartRoleRequest{Role: long}, map[string]string{"role": long[:rpcoption.ShownValue-3] + "…"}},
		"the longest text":      {&nodev1.RestartRoleRequest{Role: long[:rpcoption.ShownValue]}, map[string]string{"role": long[:rpcoption.ShownValue]}},
	} {
		if got := rpcoption.Shown(test.request); !maps.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// shapes is a message with a field of every shape that no request has yet.
func shapes(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, of string, list, shown bool) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: &name, JsonName: &name, Number: &number, Type: &kind,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: &descriptorpb.FieldOptions{},
		}
		if list {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}
		if of != "" {
			f.TypeName = &of
		}
		proto.SetExtension(f.Options, clusterv1.E_ShownInAudit, shown)
		return f
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("shapes.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("Shapes"),
			Field: []*descriptorpb.FieldDescriptorProto{
				field("names", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING, "", true, true),
				field("key", 2, descriptorpb.FieldDescriptorProto_TYPE_BYTES, "", false, true),
				field("inner", 3, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".test.Shapes", false, true),
				field("hidden", 4, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".test.Shapes", false, false),
				field("many", 5, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".test.Shapes", true, true),
			},
		}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("Shapes")
}

func TestShownOfEveryShape(t *testing.T) {
	shape := shapes(t)
	message := func(set map[protoreflect.Name]any) *dynamicpb.Message {
		m := dynamicpb.NewMessage(shape)
		for name, value := range set {
			field := shape.Fields().ByName(name)
			switch value := value.(type) {
			case []string:
				for _, one := range value {
					m.Mutable(field).List().Append(protoreflect.ValueOfString(one))
				}
			case []*dynamicpb.Message:
				for _, one := range value {
					m.Mutable(field).List().Append(protoreflect.ValueOfMessage(one))
				}
			default:
				m.Set(field, protoreflect.ValueOf(value))
			}
		}
		return m
	}
	inner := message(map[protoreflect.Name]any{"names": []string{"x", "y"}})
	got := rpcoption.Shown(message(map[protoreflect.Name]any{
		"names": []string{"a", "", "b"}, "key": []byte{0, 0xff}, "inner": inner, "hidden": inner, "many": []*dynamicpb.Message{inner, inner},
	}))
	want := map[string]string{"names": "a, , b", "key": "00ff", "inner.names": "x, y", "many.names": "x, y, x, y"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	deep := inner
	for range 10_000 {
		deep = message(map[protoreflect.Name]any{"inner": deep, "names": []string{strings.Repeat("\n", 5000), "z"}})
	}
	got = rpcoption.Shown(deep)
	if len(got) > 10 {
		t.Errorf("%d fields of a deep message are shown", len(got))
	}
	for name, value := range got {
		if len(value) > rpcoption.ShownValue || !limits.Line(value) || !strings.HasSuffix(value, "…") {
			t.Errorf("%s has %d bytes: %.40q", name, len(value), value)
		}
	}
}
