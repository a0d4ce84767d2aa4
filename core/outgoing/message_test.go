package outgoing_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/reeveproject/reeve/core/outgoing"
)

// TestMessage: what many are sent is held once, and it is known when it was sent, however small it is.
func TestMessage(t *testing.T) {
	want := wrapperspb.String("x")
	encoded, err := outgoing.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for n := range 2 {
		parts, err := outgoing.NewCodec().Marshal(&outgoing.Message{Bytes: encoded, Sent: func() { sent++ }})
		if err != nil || len(parts) != 1 || &parts[0].ReadOnlyData()[0] != &encoded[0] {
			t.Fatalf("%d parts, or others than were given: %v", len(parts), err)
		}
		got := new(wrapperspb.StringValue)
		if err := outgoing.NewCodec().Unmarshal(parts, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v", got, err)
		}
		parts.Ref()
		parts.Free()
		if sent != n {
			t.Error("it counts as sent while somebody has it")
		}
		if parts.Free(); sent != n+1 {
			t.Error("it does not count as sent")
		}
	}
	if parts, err := outgoing.NewCodec().Marshal(want); err != nil || parts.Len() != len(encoded) {
		t.Errorf("a message of the protocol: %d bytes, %v", parts.Len(), err)
	}
}
