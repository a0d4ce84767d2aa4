package network

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

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

// At boot the address of IPv6 is there before that of DHCPv4, and a cable that is drawn takes one of them away for a moment: neither changes which one is preferred.
func TestTheFirstAddressComesLater(t *testing.T) {
	now := time.Unix(1e9, 0)
	config := Config{Log: hclog.NewNullLogger(), Kept: filepath.Join(t.TempDir(), "address.json"), Now: func() time.Time { return now }}
	var room *Room
	start := func() {
		room = New(config)
		room.readFirst()
	}
	expect := func(again time.Duration, want []string, list ...string) {
		t.Helper()
		if got, left := room.prefer(list); !slices.Equal(got, want) || left != again {
			t.Errorf("of %v: %v, again in %s; not %v, in %s", list, got, left, want, again)
		}
	}
	const four, six = "192.0.2.7", "2001:db8::7"
	start()
	expect(0, []string{four}, four)
	for range 2 {
		start()
		expect(returns, []string{six}, six)
		now = now.Add(returns - time.Second)
		expect(time.Second, []string{six}, six)
		expect(0, []string{four, six}, six, four)
		// Nothing takes its place while there is nothing else.
		now = now.Add(time.Hour)
		expect(0, nil)
		now = now.Add(time.Hour)
		expect(returns, []string{six}, six)
	}
	now = now.Add(returns)
	expect(0, []string{six}, six)
	expect(0, []string{six, four}, four, six)
	start()
	expect(0, []string{six, four}, four, six)
}
