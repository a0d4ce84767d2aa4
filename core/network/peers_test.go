package network_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/network"
)

// Peers are those of the parameters and those that were set last, over a restart too. What cannot be one is refused, and changes nothing.
func TestPeers(t *testing.T) {
	config := network.Config{Log: hclog.NewNullLogger(), Peers: []string{"db.example", "192.0.2.1"}, KeptPeers: filepath.Join(t.TempDir(), "cache", "peers.json")}
	room := network.New(config)
	is := func(want ...string) {
		t.Helper()
		for name, r := range map[string]*network.Room{"now": room, "after a restart": network.New(config)} {
			if now, _ := r.Peers().Get(); !slices.Equal(now, want) {
				t.Errorf("%s: %q, want %q", name, now, want)
			}
		}
	}
	is("db.example", "192.0.2.1")
	for _, set := range [][]string{{"192.0.2.1", "fd00::7", "fe80::1%eth0", "7a.7b", "a-b.c.", "localhost"}, {"x1"}} {
		if all, err := room.SetPeers(set, false); err != nil || !slices.Contains(all, set[len(set)-1]) {
			t.Fatalf("%q, %v", all, err)
		}
	}
	if all, err := room.SetPeers([]string{"x2"}, true); err != nil || !slices.Contains(all, "x2") {
		t.Errorf("a dry run: %q, %v", all, err)
	}
	is("db.example", "192.0.2.1", "x1")
	for _, wrong := range []string{"", "192.0.2.1:7445", "-a", "a b", "a..b", "http://a", strings.Repeat("a", 64), strings.Repeat("a.", 128), "a\x1b", "10.0.0", "10.0.0.256", "7", "a.7.", "fe80::1%" + strings.Repeat("a", 16)} {
		var refused *network.PeerError
		if _, err := room.SetPeers([]string{"fine", wrong}, false); !errors.As(err, &refused) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := room.SetPeers(make([]string, 65), false); err == nil {
		t.Error("65 peers are taken")
	}
	is("db.example", "192.0.2.1", "x1")
	if _, err := room.SetPeers(nil, false); err != nil {
		t.Fatal(err)
	}
	is("db.example", "192.0.2.1")

	// Of calls at the same time, the one that is kept is the one that counts.
	var setting sync.WaitGroup
	for i := range 32 {
		setting.Go(func() {
			if _, err := room.SetPeers([]string{fmt.Sprintf("x%d", i)}, false); err != nil {
				t.Error(err)
			}
		})
	}
	setting.Wait()
	now, _ := room.Peers().Get()
	is(now...)
}
