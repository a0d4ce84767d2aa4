package cluster_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/inorder"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// refusalOf is the error of a call with a detail.
func refusalOf(t *testing.T, code codes.Code, detail protoadapt.MessageV1) error {
	t.Helper()
	answer, err := status.New(code, "no").WithDetails(detail)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Err()
}

func TestEveryCallCarriesTheIncarnation(t *testing.T) {
	withCurators(t, 1, func(t *testing.T, m *many) {
		var incarnation event.Value[*clusterv1.Incarnation]
		m.again(func(c *cluster.Config) { c.Incarnation = &incarnation })
		c := m.curators[m.addresses[0]]
		c.set(func(r *rules) { r.issue = func() [][]byte { return m.ca.svid(m.key, 0, time.Hour).Certificate } })
		m.identity.Set(m.ca.node(m.key, nil))
		m.status.Set(reported("1"))
		defer m.run()()
		m.reason(func(reason string) bool { return strings.Contains(reason, "number of this start") })
		time.Sleep(time.Minute)
		if calls, _ := c.calls.Get(); len(calls) > 0 {
			t.Errorf("it was called: %v", calls)
		}
		this := &clusterv1.Incarnation{Number: 7, Nonce: bytes.Repeat([]byte{3}, 16)}
		incarnation.Set(this)
		m.contact(true)
		if _, _, err := m.client.IssueRoleSVID(t.Context(), "lighthouse", []byte("request")); err != nil {
			t.Fatal(err)
		}
		await(t, &c.calls, func([]call) bool {
			for _, method := range []string{"Watch", "Heartbeat", "ReportStatus", "IssueSVID", "IssueRoleSVID"} {
				if c.count(method) == 0 {
					return false
				}
			}
			return true
		})
		calls, _ := c.calls.Get()
		for _, call := range calls {
			if len(call.incarnation) != 1 || call.incarnation[0] != this.Header() {
				t.Errorf("%s came with %q", call.method, call.incarnation)
			}
		}
	})
}

func TestOnlyTheTombstoneThatNamesTheNodeIsTaken(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		code    codes.Code
		names   func(m *many) string
		removed bool
	}{
		"of this node":     {codes.PermissionDenied, func(m *many) string { return nodeID(m.key) }, true},
		"of another node":  {codes.PermissionDenied, func(*many) string { return "reeve-other" }, false},
		"of nobody":        {codes.PermissionDenied, func(*many) string { return "" }, false},
		"by another error": {codes.NotFound, func(m *many) string { return nodeID(m.key) }, false},
	}) {
		t.Run(name, func(t *testing.T) {
			withCurators(t, 1, func(t *testing.T, m *many) {
				refusal := refusalOf(t, test.code, &clusterv1.NodeRemoved{NodeId: test.names(m), Reason: "by the owner"})
				m.curators[m.addresses[0]].set(func(r *rules) { r.refuse = refusal })
				defer m.run()()
				time.Sleep(time.Minute)
				synctest.Wait()
				removed, _ := m.client.Removed().Get()
				if (removed != nil) != test.removed || removed != nil && removed.Reason != "by the owner" {
					t.Errorf("it is %+v", removed)
				}
				m.contact(false)
			})
		})
	}
	t.Run("of somebody who is no curator", func(t *testing.T) {
		withCurators(t, 1, func(t *testing.T, m *many) {
			c := m.curators[m.addresses[0]]
			refusal := refusalOf(t, codes.PermissionDenied, &clusterv1.NodeRemoved{NodeId: nodeID(m.key)})
			c.set(func(r *rules) { r.refuse = refusal })
			c.certificate.Store(newAuthority(t).curatorCertificate())
			defer m.run()()
			time.Sleep(time.Minute)
			synctest.Wait()
			if removed, ok := m.client.Removed().Get(); ok {
				t.Errorf("it is %+v", removed)
			}
		})
	})
}

func TestARefusedIncarnationIsNoContactAndSaysWhatToDo(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		detail *clusterv1.IncarnationRefused
		says   string
	}{
		"an older copy": {&clusterv1.IncarnationRefused{Known: 9}, "knows start 9"},
		"a twin":        {&clusterv1.IncarnationRefused{Known: 7, Twin: true}, "another machine runs with the key"},
	}) {
		t.Run(name, func(t *testing.T) {
			withCurators(t, 2, func(t *testing.T, m *many) {
				m.again(func(c *cluster.Config) {
					c.Incarnation = event.New(&clusterv1.Incarnation{Number: 7, Nonce: make([]byte, 16)})
				})
				defer m.run()()
				m.contact(true)
				refusal := refusalOf(t, codes.FailedPrecondition, test.detail)
				for _, c := range m.curators {
					c.set(func(r *rules) { r.refuse = refusal })
				}
				began := time.Now()
				reason := m.contact(false).Reason
				if took := time.Since(began); took > ttl/3 {
					t.Errorf("contact ended after %v", took)
				}
				if !strings.Contains(reason, test.says) || !strings.Contains(reason, "`reeve node accept "+nodeID(m.key)+"`") {
					t.Errorf("the reason is %q", reason)
				}
				if refused, _ := m.client.Refused().Get(); refused == nil || refused.Twin != test.detail.GetTwin() || refused.Known != test.detail.GetKnown() || refused.Reason != reason {
					t.Errorf("refused is %+v", refused)
				}
				for _, c := range m.curators {
					c.set(func(r *rules) { r.refuse = nil })
				}
				m.contact(true)
				if refused, _ := m.client.Refused().Get(); refused != nil {
					t.Errorf("refused is %+v", refused)
				}
			})
		})
	}
}

func TestAnSVIDOfARole(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		early, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, _, err := m.client.IssueRoleSVID(early, "lighthouse", []byte("request")); err == nil || status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "has not been called yet") {
			t.Errorf("before there is contact: %v", err)
		}
		defer m.run()()
		svid, ca, err := m.client.IssueRoleSVID(t.Context(), "lighthouse", []byte("request"))
		if err != nil || len(svid) != 2 || string(svid[0]) != "request" || string(svid[1]) != "lighthouse" || len(ca) != 1 {
			t.Fatalf("%q, %q, %v", svid, ca, err)
		}
		m.contact(true)
		// The curator dies under the call.
		hold := make(chan struct{})
		m.curators[m.addresses[0]].set(func(r *rules) { r.hold = hold })
		ended := make(chan error, 1)
		go func() {
			_, _, err := m.client.IssueRoleSVID(t.Context(), "lighthouse", []byte("request"))
			ended <- err
		}()
		await(t, &m.curators[m.addresses[0]].calls, func([]call) bool { return m.curators[m.addresses[0]].count("IssueRoleSVID") == 2 })
		close(hold)
		m.curators[m.addresses[0]].set(func(r *rules) { r.hold, r.refuse = nil, status.Error(codes.Unavailable, "it stops") })
		m.down[m.addresses[0]]()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		// What the cluster refuses is not asked again. Nothing else is refused: the node would go to another curator, and a call that is cut then is made again.
		c := m.curators[m.addresses[1]]
		m.at(m.addresses[1], "1")
		c.set(func(r *rules) { r.refuseRole = status.Error(codes.NotFound, "the role is not assigned") })
		before := c.count("IssueRoleSVID")
		if _, _, err := m.client.IssueRoleSVID(t.Context(), "lighthouse", nil); status.Code(err) != codes.NotFound {
			t.Errorf("it is %v", err)
		}
		if n := c.count("IssueRoleSVID") - before; n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestTheCAIsReplacedUnderTheNode(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		defer m.run()()
		m.at(m.addresses[0], "1")
		end := m.unbroken()
		next := newAuthority(t)
		both := m.directory(8, m.addresses...)
		both.CaCertificates = append(both.CaCertificates, next.certificate.Raw)
		for _, c := range m.curators {
			c.view.Set(both)
			// The node asks for an SVID of the new one within some seconds, at a moment of its own choice.
			c.set(func(r *rules) {
				r.issue = func() [][]byte { return next.svid(m.key, time.Hour, 500*time.Hour).Certificate }
			})
		}
		await(t, m.client.Credentials(), func(c identity.Credentials) bool { return len(c.CA) == 2 && bytes.Equal(c.CA[1], next.certificate.Raw) })
		now, _ := m.identity.Get()
		after := *now
		after.CA = append([]*x509.Certificate{next.certificate}, now.CA...)
		m.identity.Set(&after)
		for i, certificate := range []*tls.Certificate{m.ca.curatorCertificate(), next.curatorCertificate()} {
			m.curators[m.addresses[i]].certificate.Store(certificate)
		}
		m.at(m.addresses[0], "2")
		m.down[m.addresses[0]]()
		m.at(m.addresses[1], "3")
		end()
	})
}
