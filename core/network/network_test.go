package network

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

func TestPreferred(t *testing.T) {
	a := func(address string, link int, toWorld bool) candidate {
		return candidate{address: netip.MustParseAddr(address), link: link, toWorld: toWorld}
	}
	got := preferred([]candidate{
		a("127.0.0.1", 1, false), a("::1", 1, false), a("fe80::1", 2, true), a("2001:db8::1", 2, true), a("10.1.0.9", 3, false),
		a("10.0.0.2", 2, true), a("10.0.0.1", 2, true), a("10.0.0.1", 4, true), a("192.168.0.1", 2, false), a("169.254.1.1", 2, true),
	})
	want := []string{"10.0.0.1", "10.0.0.2", "2001:db8::1", "192.168.0.1", "10.1.0.9"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNamedAddresses(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	room := New(Config{Log: hclog.NewNullLogger(), Addresses: []string{"192.0.2.1", "192.0.2.2"}})
	done := make(chan error)
	go func() { done <- room.Run(ctx) }()
	addresses, err := room.Addresses().Watch().Next(ctx)
	if err != nil || !slices.Equal(addresses, []string{"192.0.2.1", "192.0.2.2"}) {
		t.Errorf("%v, %v", addresses, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
