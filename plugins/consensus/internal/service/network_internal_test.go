package service

import (
	"context"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

// addressed is a network of which only the addresses are asked for.
type addressed struct {
	Network
	addresses event.Value[[]string]
}

func (a *addressed) Peers() []string { return nil }

func (a *addressed) Addresses() *event.Value[[]string] { return &a.addresses }

// The member listens on all addresses, so that whatever address comes first it is the same listener; on a loopback address, which other nodes of the machine have beside it, alone.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		configured string
		addresses  []string
		want       store.Place
	}{
		{"", []string{"192.0.2.1", "192.0.2.2"}, store.Place{Listen: ":7445", Host: "192.0.2.1"}},
		{"", []string{"192.0.2.2"}, store.Place{Listen: ":7445", Host: "192.0.2.2"}},
		{":7000", []string{"192.0.2.1"}, store.Place{Listen: ":7000", Host: "192.0.2.1"}},
		{"", []string{"127.0.0.2"}, store.Place{Listen: "127.0.0.2:7445", Host: "127.0.0.2"}},
		{"0.0.0.0:7000", []string{"127.0.0.2"}, store.Place{Listen: "0.0.0.0:7000", Host: "127.0.0.2"}},
		{"192.0.2.9:7000", nil, store.Place{Listen: "192.0.2.9:7000", Host: "192.0.2.9"}},
	} {
		network := new(addressed)
		network.addresses.Set(c.addresses)
		p := newPlace(Config{Network: network, PeerListen: c.configured})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.run(ctx) }()
		if at, err := p.at.Wait(t.Context(), func(store.Place) bool { return true }); err != nil || at != c.want {
			t.Errorf("%q, %v: %v, %v", c.configured, c.addresses, at, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
