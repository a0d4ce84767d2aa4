package held

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What many are sent is held once, and it is known when it was sent, however small it is.
func TestMessage(t *testing.T) {
	want := wrapperspb.String("x")
	encoded, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for n := range 2 {
		parts, err := newCodec().Marshal(&Message{Own: encoded, Sent: func() { sent++ }})
		if err != nil || len(parts) != 1 || &parts[0].ReadOnlyData()[0] != &encoded[0] {
			t.Fatalf("%d parts, or others than were given: %v", len(parts), err)
		}
		got := new(wrapperspb.StringValue)
		if err := newCodec().Unmarshal(parts, got); err != nil || !proto.Equal(got, want) {
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
	for _, message := range []any{want, &Message{Shared: encoded}, &Message{Shared: encoded[:1], Own: encoded[1:]}} {
		if parts, err := newCodec().Marshal(message); err != nil || string(parts.Materialize()) != string(encoded) {
			t.Errorf("%v is encoded as %q, %v", message, parts.Materialize(), err)
		}
	}
}
