package cluster_test

import (
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/membership"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// off is a machine whose clock is off by a time that a test sets. The timers of its programs run on regardless, as they do.
type off struct {
	*node
	by  atomic.Int64
	set event.Value[int]
}

func (o *off) now() time.Time { return time.Now().Add(time.Duration(o.by.Load())) }

// to has the clock show a time, and tells that it was set.
func (o *off) to(at time.Time) {
	o.by.Store(int64(time.Until(at)))
	o.set.Update(func(n int) int { return n + 1 })
}

// onAnotherClock runs a test with a node whose clock can be set, and a curator at a:1 with the certificate. The cluster is a thousand hours old.
func onAnotherClock(t *testing.T, test func(t *testing.T, o *off, c *curator)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * 365 * 24 * time.Hour) // the bubble begins in 2000, and 1970 is to be a clock that is wrong
		network := newPipes()
		o := &off{node: newNode(t, network.dial)}
		o.client = cluster.New(cluster.Config{
			Log: hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Debug}), Identity: &o.identity, Capabilities: &o.capabilities,
			Status: &o.status, Dial: network.dial, Now: o.now, ClockSet: &o.set, Incarnation: event.New(&clusterv1.Incarnation{Number: 1}),
			Known: knowsNone,
		})
		c := newCurator(o.ca.curatorCertificate())
		c.view.Set(o.response(7))
		c.set(func(r *rules) {
			r.issue = func() [][]byte { return o.ca.svid(o.key, time.Hour, 24*time.Hour).Certificate }
		})
		defer c.serve(t, network.listen("a:1"))()
		o.curatorAt("i1", "a:1")
		test(t, o, c)
	})
}

// aWhile is longer than the client waits before it looks at its clock again.
const aWhile = 90 * time.Second

// settled is the contact after a while of trying.
func (o *off) settled() membership.Contact {
	o.t.Helper()
	time.Sleep(aWhile)
	synctest.Wait()
	contact, _ := o.client.Contact().Get()
	return contact
}

func TestAWrongClockIsTheReason(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		// clock is what the machine's clock shows, from what it should.
		clock func(now time.Time) time.Time
		// curator is the certificate with which the curator serves; nil: one that is valid from an hour ago.
		curator func(o *off) *tls.Certificate
		says    []string
	}{
		"1970": {
			clock: func(time.Time) time.Time { return time.Unix(60, 0) },
			says:  []string{"this machine's clock says 1970-01-01T00:01:00Z", "before the certificate of the cluster's CA is valid (from 2019-12-"},
		},
		"1970, and so the curator's": {
			clock: func(time.Time) time.Time { return time.Unix(60, 0) },
			curator: func(o *off) *tls.Certificate {
				age := time.Since(time.Unix(0, 0))
				return o.ca.issue(newKey(o.t), names.RoleURI(trustDomain, "reeve-00", "curator"), []string{names.CuratorName(trustDomain)}, age, 24*time.Hour-age)
			},
			says: []string{"this machine's clock says 1970-01-01T00:01:00Z", "before the certificate of the cluster's CA is valid"},
		},
		"after the CA": {
			clock: func(now time.Time) time.Time { return now.Add(2000 * time.Hour) },
			says:  []string{"after the certificate of the cluster's CA ended (valid until 2020-0"},
		},
		"before the SVID": {
			clock: func(now time.Time) time.Time { return now.Add(-59 * time.Minute) },
			curator: func(o *off) *tls.Certificate {
				o.identity.Set(o.ca.node(o.key, o.ca.svid(o.key, 30*time.Minute, 24*time.Hour)))
				return o.ca.issue(newKey(o.t), names.RoleURI(trustDomain, "reeve-00", "curator"), []string{names.CuratorName(trustDomain)}, 0, 24*time.Hour)
			},
			says: []string{"before the node's own SVID is valid (from 2019-12-"},
		},
		"an hour behind the curator": {
			clock: func(now time.Time) time.Time { return now.Add(-time.Hour + time.Minute) },
			curator: func(o *off) *tls.Certificate {
				return o.ca.issue(newKey(o.t), names.RoleURI(trustDomain, "reeve-00", "curator"), []string{names.CuratorName(trustDomain)}, 0, 24*time.Hour)
			},
			says: []string{"before the certificate of i1 at a:1 is valid"},
		},
		"an hour after the curator's ended": {
			clock: func(now time.Time) time.Time { return now.Add(25 * time.Hour) },
			curator: func(o *off) *tls.Certificate {
				return o.ca.issue(newKey(o.t), names.RoleURI(trustDomain, "reeve-00", "curator"), []string{names.CuratorName(trustDomain)}, time.Hour, 24*time.Hour)
			},
			says: []string{"after the certificate of i1 at a:1 ended"},
		},
	}) {
		t.Run(name, func(t *testing.T) {
			onAnotherClock(t, func(t *testing.T, o *off, c *curator) {
				if test.curator != nil {
					c.certificate.Store(test.curator(o))
				}
				o.by.Store(int64(time.Until(test.clock(time.Now()))))
				defer o.run()()
				contact := o.settled()
				for _, part := range append(test.says, "set it right", "goes on by itself") {
					if contact.OK || !strings.Contains(contact.Reason, part) {
						t.Errorf("contact %v, and the reason %q does not say %q", contact.OK, contact.Reason, part)
					}
				}
				// It is told once, and not at every try.
				changes := o.client.Contact().Watch()
				if _, err := changes.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(aWhile)
				synctest.Wait()
				select {
				case <-changes.Changed():
					now, _ := changes.Latest()
					t.Errorf("it is told anew: %q, and before %q", now.Reason, contact.Reason)
				default:
				}
				// A curator on the same machine makes itself another certificate once the time is right; nothing here is started again.
				c.certificate.Store(o.ca.curatorCertificate())
				right := time.Now()
				o.to(right)
				if healed := o.contact(true); healed.Reason != "" {
					t.Errorf("with the right time: %q", healed.Reason)
				}
				if took := time.Since(right); took > 5*time.Second {
					t.Errorf("it took %s to heal", took)
				}
			})
		})
	}
}

// Clocks may be an hour apart: certificates begin an hour before they are made, and end many hours later.
func TestAnHourOffIsNoMatter(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour + time.Minute, time.Hour, 11 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			onAnotherClock(t, func(t *testing.T, o *off, _ *curator) {
				o.by.Store(int64(by))
				defer o.run()()
				defer o.follow()()
				if contact := o.settled(); !contact.OK || contact.Reason != "" {
					t.Errorf("contact %+v", contact)
				}
			})
		})
	}
}

// A node that was off for longer than its SVID lives comes back by its key, and gets another SVID.
func TestOffForLongerThanAnSVIDLives(t *testing.T) {
	onAnotherClock(t, func(t *testing.T, o *off, c *curator) {
		o.identity.Set(o.ca.node(o.key, o.ca.svid(o.key, 900*time.Hour, -876*time.Hour)))
		defer o.run()()
		defer o.follow()()
		if contact := o.settled(); !contact.OK || contact.Reason != "" {
			t.Errorf("contact %+v", contact)
		}
		calls, _ := c.calls.Get()
		if _, err := names.PinnedKey(calls[0].who); err != nil {
			t.Errorf("the first call came with %v: %v", calls[0].who.URIs, err)
		}
		if _, err := names.PinnedKey(calls[len(calls)-1].who); err == nil {
			t.Error("the last call came without an SVID")
		}
	})
}

// A clock that jumps while all is well ends nothing, and is told; an SVID that was issued while it was ahead is replaced when it is right.
func TestAClockThatJumps(t *testing.T) {
	onAnotherClock(t, func(t *testing.T, o *off, c *curator) {
		o.identity.Set(o.ca.node(o.key, nil))
		c.set(func(r *rules) {
			r.issue = func() [][]byte {
				ahead := time.Duration(o.by.Load())
				return o.ca.svid(o.key, time.Hour-ahead, 24*time.Hour+ahead).Certificate
			}
		})
		o.by.Store(int64(5 * time.Hour))
		defer o.run()()
		defer o.follow()()
		if contact := o.settled(); !contact.OK || contact.Reason != "" {
			t.Errorf("five hours ahead: %+v", contact)
		}
		issued := c.count("IssueSVID")
		o.to(time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.count("IssueSVID"); got != issued+1 {
			t.Errorf("%d SVIDs were asked for after the clock was set right, want 1", got-issued)
		}
		o.to(time.Unix(60, 0))
		time.Sleep(time.Second)
		synctest.Wait()
		contact, _ := o.client.Contact().Get()
		if !contact.OK || !strings.Contains(contact.Reason, "this machine's clock says 1970-") {
			t.Errorf("the clock jumped to 1970: %+v", contact)
		}
		o.to(time.Now())
		if contact := o.settled(); !contact.OK || contact.Reason != "" {
			t.Errorf("the clock is right again: %+v", contact)
		}
	})
}
