package auth

import (
	"crypto/x509"
	"testing"
	"time"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// A chain counts as verified only while all of it is valid, and for the very same certificates, cluster and CA.
func TestVerifiedIsOfOneChainOneCAAndItsTime(t *testing.T) {
	now := time.Now()
	certificate := func(raw string, from, to int) *x509.Certificate {
		return &x509.Certificate{Raw: []byte(raw), NotBefore: now.Add(time.Duration(from) * time.Hour), NotAfter: now.Add(time.Duration(to) * time.Hour)}
	}
	leaf, root := certificate("leaf", -2, 3), certificate("root", -1, 2)
	state := func(cluster string, ca ...string) *store.State {
		s := &store.State{Cluster: &curatorv1.Cluster{ClusterId: cluster}}
		for _, der := range ca {
			s.CA = append(s.CA, []byte(der))
		}
		return s
	}
	chain := []*x509.Certificate{leaf, root}
	shown := digest(chain, state("c", "root"))
	var v verified
	if v.at(shown, now) {
		t.Error("nothing was verified yet")
	}
	v.keep(shown, nil)
	if v.at(shown, now) {
		t.Error("no way was found")
	}
	v.keep(shown, [][]*x509.Certificate{chain})
	for hours, want := range map[float64]bool{-1.5: false, -0.5: true, 0: true, 1.9: true, 2.1: false} {
		if got := v.at(shown, now.Add(time.Duration(hours*float64(time.Hour)))); got != want {
			t.Errorf("verified in %v hours: %v", hours, got)
		}
	}
	for what, other := range map[string][32]byte{
		"another CA":         digest(chain, state("c", "other")),
		"two CAs":            digest(chain, state("c", "root", "other")),
		"no CA":              digest(chain, state("c")),
		"another cluster":    digest(chain, state("d", "root")),
		"another leaf":       digest([]*x509.Certificate{certificate("feal", -2, 3), root}, state("c", "root")),
		"no root":            digest([]*x509.Certificate{leaf}, state("c", "root")),
		"what is put across": digest([]*x509.Certificate{leaf}, state("c", "root", "root")),
	} {
		if v.at(other, now) {
			t.Errorf("%s counts as verified", what)
		}
	}
}

func TestVerifiedIsBounded(t *testing.T) {
	var v verified
	way := [][]*x509.Certificate{{{NotAfter: time.Now().Add(time.Hour)}}}
	for n := range mostVerified + 100 {
		v.keep([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}, way)
	}
	if len(v.chains) != mostVerified {
		t.Errorf("%d chains are kept", len(v.chains))
	}
}
