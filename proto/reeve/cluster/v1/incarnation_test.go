package clusterv1_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func FuzzParseIncarnation(f *testing.F) {
	sample := &clusterv1.Incarnation{Number: 7, Nonce: bytes.Repeat([]byte{0xfe}, 16)}
	if got, err := clusterv1.ParseIncarnation(sample.Header()); err != nil || !proto.Equal(got, sample) {
		f.Fatalf("%q is read as %v, %v", sample.Header(), got, err)
	}
	for _, header := range []string{"", "7", "7.", "0." + sample.Header()[2:], "-1." + sample.Header()[2:], "7.00"} {
		if _, err := clusterv1.ParseIncarnation(header); err == nil {
			f.Fatalf("%q is read", header)
		}
		f.Add(header)
	}
	f.Add(sample.Header())
	f.Fuzz(func(t *testing.T, header string) {
		parsed, err := clusterv1.ParseIncarnation(header)
		if err != nil {
			return
		}
		again, err := clusterv1.ParseIncarnation(parsed.Header())
		if err != nil || !proto.Equal(parsed, again) {
			t.Fatalf("%q is read as %v, and that as %v, %v", header, parsed, again, err)
		}
	})
}
