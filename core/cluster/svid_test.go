package cluster_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/inorder"
	names "github.com/reeveproject/reeve/proto/identity"
)

// follow plays the identity room: it takes the SVIDs that the client publishes into the node's identity.
func (n *node) follow() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		credentials := n.client.Credentials().Watch()
		for {
			got, err := credentials.Next(ctx)
			if err != nil {
				return
			}
			before, _ := n.identity.Get()
			if len(got.SVID) == 0 || (before.SVID != nil && bytes.Equal(got.SVID[0], before.SVID.Certificate[0])) {
				continue
			}
			after := *before
			after.SVID = &tls.Certificate{Certificate: got.SVID, PrivateKey: n.key}
			n.identity.Set(&after)
		}
	}()
	return func() { cancel(); <-ended }
}

func TestTheNodeProvesItselfByItsKeyUntilItHasAnSVID(t *testing.T) {
	for name, svid := range inorder.Of(map[string]func(n *node) *tls.Certificate{
		"no SVID":              func(*node) *tls.Certificate { return nil },
		"an expired SVID":      func(n *node) *tls.Certificate { return n.ca.svid(n.key, 100*time.Hour, -time.Second) },
		"an SVID of to-morrow": func(n *node) *tls.Certificate { return n.ca.svid(n.key, -24*time.Hour, 25*time.Hour) },
	}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.identity.Set(n.ca.node(n.key, svid(n)))
			c := newCurator(n.ca.curatorCertificate())
			c.view.Set(n.response(7))
			fresh := n.ca.svid(n.key, time.Hour, 500*time.Hour)
			c.set(func(r *rules) { r.issue = func() [][]byte { return fresh.Certificate } })
			listener, address := listenTCP(t)
			defer c.serve(t, listener)()
			n.curatorAt("i1", address)
			defer n.run()()
			if name == "an SVID of to-morrow" {
				// It is not to be renewed, and cannot be used yet.
				n.contact(true)
				calls, _ := c.calls.Get()
				for _, call := range calls {
					if _, err := names.PinnedKey(call.who); err != nil {
						t.Errorf("%s came with %v: %v", call.method, call.who.URIs, err)
					}
				}
				return
			}
			defer n.follow()()
			with := await(t, &c.calls, func(calls []call) bool { return bytes.Equal(calls[len(calls)-1].who.Raw, fresh.Certificate[0]) })
			key, err := names.PinnedKey(with[0].who)
			if err != nil {
				t.Fatalf("the first call came with %v: %v", with[0].who.URIs, err)
			}
			if names.NodeID(key) != nodeID(n.key) {
				t.Error("the first call came with another key than the node's")
			}
			n.contact(true)
		})
	}
}

func TestAnSVIDIsRenewedAtHalfOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		n := newNode(t, network.dial)
		const life = 2 * time.Hour
		n.identity.Set(n.ca.node(n.key, n.ca.svid(n.key, 0, life)))
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		c.set(func(r *rules) {
			r.ttl = 3600
			r.issue = func() [][]byte { return n.ca.svid(n.key, 0, life).Certificate }
		})
		defer c.serve(t, network.listen("a:1"))()
		n.curatorAt("i1", "a:1")
		began := time.Now()
		defer n.run()()
		defer n.follow()()
		time.Sleep(5*life/2 + time.Minute)
		synctest.Wait()
		calls, _ := c.calls.Get()
		issues := 0
		for _, call := range calls {
			if call.method != "IssueSVID" {
				continue
			}
			issues++
			if at := call.at.Sub(began).Round(time.Minute); at != time.Duration(issues)*life/2 {
				t.Errorf("renewal %d came after %v", issues, at)
			}
			if _, err := names.PinnedKey(call.who); err == nil {
				t.Error("the renewal did not come with the SVID")
			}
		}
		if issues != 5 {
			t.Errorf("%d renewals in five half-lives", issues)
		}
		if contact, _ := n.client.Contact().Get(); !contact.OK {
			t.Errorf("contact is %+v", contact)
		}
	})
}

// A node whose SVID is of a CA that was retired in a hurry proves itself by its key, and gets another one.
func TestAnSVIDThatTheClusterDoesNotTakeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		n := newNode(t, network.dial)
		former := n.ca.svid(n.key, time.Hour, 24*time.Hour)
		n.identity.Set(n.ca.node(n.key, former))
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		fresh := n.ca.svid(n.key, 0, 24*time.Hour)
		c.set(func(r *rules) {
			r.ttl, r.denied = 3600, former.Certificate[0]
			r.issue = func() [][]byte { return fresh.Certificate }
		})
		defer c.serve(t, network.listen("a:1"))()
		n.curatorAt("i1", "a:1")
		defer n.run()()
		defer n.follow()()
		n.contact(true)
		calls := await(t, &c.calls, func(calls []call) bool { _, err := names.PinnedKey(calls[len(calls)-1].who); return err == nil })
		if !bytes.Equal(calls[0].who.Raw, former.Certificate[0]) {
			t.Errorf("the first call came with %v", calls[0].who.URIs)
		}
	})
}

func TestARenewalThatTheIdentityDoesNotTakeIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		n := newNode(t, network.dial)
		n.identity.Set(n.ca.node(n.key, nil))
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		c.set(func(r *rules) { r.issue = func() [][]byte { return n.ca.svid(n.key, 0, 2*time.Hour).Certificate } })
		defer c.serve(t, network.listen("a:1"))()
		n.curatorAt("i1", "a:1")
		defer n.run()()
		time.Sleep(55 * time.Minute)
		if got := c.count("IssueSVID"); got != 1 {
			t.Errorf("%d SVIDs were asked for", got)
		}
	})
}

func TestAnSVIDThatTheNodeCannotUseIsNotPublished(t *testing.T) {
	for name, test := range inorder.Of(map[string]func(n *node) [][]byte{
		"none":              func(*node) [][]byte { return nil },
		"damaged":           func(*node) [][]byte { return [][]byte{{1, 2, 3}} },
		"for another key":   func(n *node) [][]byte { return n.ca.svid(newKey(n.t), 0, time.Hour).Certificate },
		"expired":           func(n *node) [][]byte { return n.ca.svid(n.key, 2*time.Hour, -time.Hour).Certificate },
		"past half of life": func(n *node) [][]byte { return n.ca.svid(n.key, 2*time.Hour, time.Hour).Certificate },
	}) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newPipes()
				n := newNode(t, network.dial)
				n.identity.Set(n.ca.node(n.key, nil))
				c := newCurator(n.ca.curatorCertificate())
				c.view.Set(n.response(7))
				c.set(func(r *rules) { r.issue = func() [][]byte { return test(n) } })
				defer c.serve(t, network.listen("a:1"))()
				n.curatorAt("i1", "a:1")
				defer n.run()()
				time.Sleep(10 * time.Minute)
				if got := c.count("IssueSVID"); got < 10 || got > 60 {
					t.Errorf("%d attempts in 10 minutes", got)
				}
				if credentials, _ := n.client.Credentials().Get(); credentials.SVID != nil {
					t.Error("it was published")
				}
				n.contact(true)
			})
		})
	}
}

func TestAnSVIDStaysInTheCredentials(t *testing.T) {
	n, c := start(t)
	fresh := n.ca.svid(n.key, 0, time.Hour)
	c.set(func(r *rules) { r.issue = func() [][]byte { return fresh.Certificate } })
	n.identity.Set(n.ca.node(n.key, nil))
	holds := func(credentials identity.Credentials) bool {
		return len(credentials.SVID) == 1 && bytes.Equal(credentials.SVID[0], fresh.Certificate[0])
	}
	await(t, n.client.Credentials(), holds)
	next := n.response(8)
	next.OwnerPublicKey = []byte(strings.Repeat("o", 32))
	c.view.Set(next)
	await(t, n.client.Credentials(), func(credentials identity.Credentials) bool {
		return holds(credentials) && bytes.Equal(credentials.Owner, next.OwnerPublicKey)
	})
}

// TestCAOfAnSVID holds that the CA that comes with an SVID is not taken before a watch has said that the curator is of the store that the node follows.
func TestCAOfAnSVID(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.ca.node(n.key, nil))
	c := newCurator(n.ca.curatorCertificate())
	fresh, theirs := n.ca.svid(n.key, time.Hour, 500*time.Hour), newAuthority(t)
	c.set(func(r *rules) {
		r.issue, r.ca = func() [][]byte { return fresh.Certificate }, [][]byte{theirs.certificate.Raw}
	})
	listener, address := listenTCP(t)
	defer c.serve(t, listener)()
	n.curatorAt("i1", address)
	defer n.run()()
	if got := await(t, n.client.Credentials(), func(got identity.Credentials) bool { return len(got.SVID) > 0 }); len(got.CA) > 0 {
		t.Error("the CA of an unknown store is taken")
	}
}
