package network

import (
	"context"
	"slices"
	"testing"

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
