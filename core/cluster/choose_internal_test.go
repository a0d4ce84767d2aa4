package cluster

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func curatorNode(id, address string, healthy bool) *hostv1.DirectoryNode {
	return &hostv1.DirectoryNode{NodeId: id, Healthy: healthy, Roles: []*hostv1.DirectoryRole{{
		Role: "curator", Endpoints: []*rolev1.Endpoint{{Name: endpointName, Address: address}},
	}}}
}

// The curator of the node is reached where its machine always reaches it, also while it tells others no address. A role that names another machine for that is not believed.
func TestLocalWayToTheOwnCurator(t *testing.T) {
	for _, c := range []struct{ local, cluster, want string }{
		{"127.0.0.1:7", "192.0.2.1:7443", "127.0.0.1:7"},
		{"[::1]:7", "", "[::1]:7"},
		{"", "192.0.2.1:7443", "192.0.2.1:7443"},
		{"192.0.2.9:7", "192.0.2.1:7443", "192.0.2.1:7443"},
		{"", "", ""},
	} {
		provider := roles.Provider{InstanceID: "i1", State: hostv1.InstanceState_INSTANCE_STATE_DEGRADED}
		for name, address := range map[string]string{localName: c.local, endpointName: c.cluster} {
			if address != "" {
				provider.Endpoints = append(provider.Endpoints, &rolev1.Endpoint{Name: name, Address: address})
			}
		}
		k := known{provided: roles.Capabilities{roles.CapabilityCluster: provider}, node: &identity.Identity{}}
		if to, missing := ownCurator(k); to.address != c.want || (missing == "") != (c.want != "") {
			t.Errorf("%+v: %q, %q", c, to.address, missing)
		}
		if told := curators(k.provided, nil); (c.cluster == "") != (len(told) == 0) || slices.Contains(told, c.local) {
			t.Errorf("%+v: others are told %v", c, told)
		}
	}
}

// Nodes without a curator of their own spread over those that live, and each has the same order always.
func TestNodesSpreadOverTheCurators(t *testing.T) {
	view := &View{Node: &clusterv1.NodeRecord{}, Directory: &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
		curatorNode("n1", "a:1", true), curatorNode("n2", "b:1", true), curatorNode("n3", "c:1", true), curatorNode("n4", "d:1", false),
	}}}
	first := make(map[string]int)
	for n := range 300 {
		seed := make([]byte, ed25519.SeedSize)
		binary.BigEndian.PutUint32(seed, uint32(n))
		key := ed25519.NewKeyFromSeed(seed)
		k := known{view: view, kept: []string{"e:1", "a:1"}, node: &identity.Identity{
			NodeID: names.NodeID(key.Public().(ed25519.PublicKey)), Key: key, TrustDomain: "c.reeve", CA: []*x509.Certificate{{}},
		}}
		list, missing := candidates(k)
		if len(list) != 5 || missing != "" || list[3].address != "d:1" || list[4].address != "e:1" {
			t.Fatalf("the candidates are %+v, %q", list, missing)
		}
		first[list[0].address]++
		k.provided = roles.Capabilities{roles.CapabilityCluster: {InstanceID: "i1", State: hostv1.InstanceState_INSTANCE_STATE_READY, Endpoints: []*rolev1.Endpoint{{Name: endpointName, Address: "own:1"}}}}
		if list, _ := candidates(k); len(list) != 6 || list[0].address != "own:1" {
			t.Fatalf("with a curator of its own: %+v", list)
		}
	}
	for _, address := range []string{"a:1", "b:1", "c:1"} {
		if n := first[address]; n < 75 || n > 125 {
			t.Errorf("%d of 300 nodes go to %s", n, address)
		}
	}
}

// A curator that works for a moment now and then is left for longer every time, until it has worked for long.
func TestTheRestOfACuratorThatWorksBrieflyGrows(t *testing.T) {
	list := []target{{address: "a:1", instance: "a"}, {address: "b:1", instance: "b"}}
	flaps, now := list[0], time.Unix(1e9, 0)
	ch := newChoice()
	leave := func(worked time.Duration) time.Duration {
		t.Helper()
		ch.worked(flaps)
		ch.well(flaps)
		if failed := ch.failed(); failed != "" {
			t.Errorf("while it works: %s", failed)
		}
		if to, pause := ch.next(list, now); to != flaps || pause != 0 {
			t.Errorf("while it works the next one is %+v, in %s", to, pause)
		}
		now = now.Add(worked)
		ch.leave(flaps, list, "it hangs", false, worked, now)
		ch.ended(flaps, worked)
		if failed := ch.failed(); !strings.Contains(failed, "a at a:1: it hangs") {
			t.Errorf("failed: %q", failed)
		}
		return ch.rests[flaps.key()].until.Sub(now)
	}
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		if got := leave(5 * time.Second); got != want {
			t.Fatalf("it rests %s, want %s", got, want)
		}
		if to, _ := ch.next(list, now); to != list[1] {
			t.Fatalf("while it rests the next one is %+v", to)
		}
	}
	if got := leave(2 * restMost); got != restFirst {
		t.Errorf("after it has worked for long it rests %s", got)
	}
	leave(time.Second)
	// A session that ended for another reason.
	ch.well(flaps)
	ch.ended(flaps, 2*restMost)
	if got := leave(time.Second); got != restFirst {
		t.Errorf("after a long session that ended by itself it rests %s", got)
	}
}

// A curator whose store is refused is asked again soon, however often it was refused: it is followed as soon as the node's own store is gone for long enough.
func TestTheRestOfARefusedCuratorIsShort(t *testing.T) {
	list := []target{{address: "a:1", instance: "a"}, {address: "b:1", instance: "b"}}
	now := time.Unix(1e9, 0)
	ch := newChoice()
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		ch.leave(list[0], list, "another store", true, 0, now)
		if got := ch.rests[list[0].key()].until.Sub(now); got != want {
			t.Errorf("it rests %s, want %s", got, want)
		}
	}
}

// Whatever the file of curators holds, what is read of it are addresses, and not many.
func FuzzKept(f *testing.F) {
	path := filepath.Join(f.TempDir(), "curators.json")
	for _, list := range [][]string{nil, {"a:1"}, {"a:1", "https://b:2", "nowhere", ""}, slices.Repeat([]string{"a:1"}, 100)} {
		if err := storage.WriteDocument(path, keptVersion, keptFile{Curators: list}, 0o600); err != nil {
			f.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readKept(path)
		if err != nil && len(list) > 0 || len(list) > maxKept {
			t.Errorf("%q, %v", list, err)
		}
		for _, address := range list {
			if _, err := hostPort(address); err != nil {
				t.Errorf("%q: %v", address, err)
			}
		}
	})
}
