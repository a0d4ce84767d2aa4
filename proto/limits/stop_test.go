package limits_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/limits"
)

func TestStopGrace(t *testing.T) {
	for _, test := range []struct {
		declared *durationpb.Duration
		ok       bool
		is       time.Duration
	}{
		{nil, true, limits.StopGrace},
		{durationpb.New(limits.MinStopGrace), true, limits.MinStopGrace},
		{durationpb.New(90 * time.Second), true, 90 * time.Second},
		{durationpb.New(limits.MaxStopGrace), true, limits.MaxStopGrace},
		// What is not let through anywhere is bounded all the same where it is used.
		{durationpb.New(limits.MaxStopGrace + 1), false, limits.MaxStopGrace},
		{durationpb.New(0), false, limits.MinStopGrace},
		{durationpb.New(-time.Hour), false, limits.MinStopGrace},
		{&durationpb.Duration{Seconds: 60, Nanos: -1}, false, time.Minute - 1},
	} {
		if ok, is := limits.StopGraceOK(test.declared), limits.StopGraceOf(test.declared); ok != test.ok || is != test.is {
			t.Errorf("%v: %v and %s, want %v and %s", test.declared, ok, is, test.ok, test.is)
		}
	}
}
