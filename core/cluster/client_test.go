package cluster_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/roles"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// start runs a node and its curator over TCP.
func start(t *testing.T) (*node, *curator) {
	t.Helper()
	n := newNode(t, nil)
	c := newCurator(n.ca.curatorCertificate())
	c.view.Set(n.response(7))
	listener, address := listenTCP(t)
	t.Cleanup(c.serve(t, listener))
	n.curatorAt("i1", address)
	t.Cleanup(n.run())
	return n, c
}

func TestWhatTheClusterSaysIsPublished(t *testing.T) {
	n, c := start(t)
	n.contact(true)
	view := await(t, n.client.View(), func(v *cluster.View) bool { return v.Revision == 7 })
	want := n.response(7)
	equal(t, "the record", view.Node, want.Node)
	equal(t, "the directory", view.Directory, ofFirst(want.Directory))
	if len(view.Plugins) != 1 || view.Plugins[0].GetName() != "lighthouse" {
		t.Errorf("the plugins are %v", view.Plugins)
	}
	credentials, _ := n.client.Credentials().Get()
	if len(credentials.CA) != 1 || !bytes.Equal(credentials.CA[0], n.ca.certificate.Raw) || len(credentials.Owner) != ed25519.PublicKeySize || credentials.SVID != nil {
		t.Errorf("the credentials are %+v", credentials)
	}

	next := n.response(8)
	next.Directory = nil
	c.view.Set(next)
	view = await(t, n.client.View(), func(v *cluster.View) bool { return v.Revision == 8 })
	if view.Directory == nil {
		t.Error("a view without a directory")
	}
}

func TestTheSameWordIsNotPublishedAgain(t *testing.T) {
	n, c := start(t)
	n.contact(true)
	views := n.client.View().Watch()
	if _, err := views.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.view.Set(n.response(7))
	second := newCurator(n.ca.curatorCertificate())
	second.view.Set(n.response(7))
	listener, address := listenTCP(t)
	t.Cleanup(second.serve(t, listener))
	n.curatorAt("i2", address)
	n.status.Set(reported("1")) // is sent after the watch has delivered
	await(t, &second.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
	select {
	case <-views.Changed():
		t.Error("the view was published again")
	default:
	}
}

func TestTheConnectionFollowsTheEndpoint(t *testing.T) {
	n := newNode(t, nil)
	t.Cleanup(n.run())
	n.status.Set(reported("1"))
	for _, instance := range []string{"i1", "i2", "i3"} {
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		listener, address := listenTCP(t)
		stop := c.serve(t, listener)
		n.curatorAt(instance, address)
		await(t, &c.reports, func(r []*clusterv1.NodeStatus) bool { return slices.Equal(versions(r), []string{"1"}) })
		await(t, n.client.Curators(), func(list []string) bool { return slices.Equal(list, []string{address}) })
		n.contact(true)
		stop()
	}
}

func TestACuratorThatReturnsToItsPortIsFoundAndToldAgain(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.status.Set(reported("1"))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
		synctest.Wait() // until its answer has arrived: a report without one is repeated in any case
		down()
		time.Sleep(time.Second)
		defer s.up("a:1")()
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return slices.Equal(versions(r), []string{"1", "1"}) })
		s.contact(true)
	})
}

func TestOnlyChangesAreReportedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		n := newNode(t, network.dial)
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		hold := make(chan struct{})
		c.set(func(r *rules) { r.hold = hold })
		defer c.serve(t, network.listen("a:1"))()
		n.curatorAt("i1", "a:1")
		n.status.Set(reported("1"))
		defer n.run()()
		await(t, &c.calls, func([]call) bool { return c.count("ReportStatus") == 1 })
		for _, version := range []string{"2", "3", "4"} {
			n.status.Set(reported(version))
			synctest.Wait()
		}
		if got := c.count("ReportStatus"); got != 1 {
			t.Errorf("%d reports are on their way at a time", got)
		}
		c.set(func(r *rules) { r.hold = nil })
		close(hold)
		await(t, &c.reports, func(r []*clusterv1.NodeStatus) bool { return slices.Equal(versions(r), []string{"1", "4"}) })

		same := reported("4")
		same.Reported = timestamppb.Now()
		n.status.Set(same)
		time.Sleep(time.Hour) // on the fake clock: nothing is repeated while the connection holds
		synctest.Wait()
		if reports, _ := c.reports.Get(); len(reports) != 2 {
			t.Errorf("what did not change was reported: %v", versions(reports))
		}
		n.status.Set(reported("5"))
		await(t, &c.reports, func(r []*clusterv1.NodeStatus) bool { return slices.Equal(versions(r), []string{"1", "4", "5"}) })
	})
}

func TestTheNodeTalksOnlyToItsCurators(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		certificate func(n *node) *tls.Certificate
		says        string
	}{
		"a foreign CA": {
			func(n *node) *tls.Certificate { return newAuthority(t).curatorCertificate() },
			"certificate signed by unknown authority",
		},
		"a new CA of the cluster": {
			func(*node) *tls.Certificate {
				other := newAuthority(t)
				shown := other.curatorCertificate()
				shown.Certificate = append(shown.Certificate, other.certificate.Raw)
				return shown
			},
			"the cluster has a new CA since " + time.Now().UTC().Format("2006-01-02T"),
		},
		"the certificate of a node": {
			func(n *node) *tls.Certificate { return n.ca.svid(newKey(t), time.Hour, time.Hour) },
			"certificate is not valid for any names, but wanted to match curator." + trustDomain,
		},
		"the certificate of another cluster's curator": {
			func(n *node) *tls.Certificate {
				return n.ca.issue(newKey(t), names.ClusterURI("other.reeve"), []string{names.CuratorName("other.reeve")}, time.Hour, time.Hour)
			},
			"certificate is valid for curator.other.reeve, not curator." + trustDomain,
		},
		"an expired certificate": {
			func(n *node) *tls.Certificate {
				return n.ca.issue(newKey(t), names.ClusterURI(trustDomain), []string{names.CuratorName(trustDomain)}, time.Hour, -time.Minute)
			},
			"certificate has expired",
		},
	}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.status.Set(reported("secret"))
			c := newCurator(test.certificate(n))
			c.view.Set(n.response(7))
			listener, address := listenTCP(t)
			defer c.serve(t, listener)()
			n.curatorAt("i1", address)
			defer n.run()()
			n.reason(func(reason string) bool { return strings.Contains(reason, test.says) })
			if calls, _ := c.calls.Get(); len(calls) > 0 {
				t.Errorf("it was called: %v", calls)
			}
		})
	}
}

func TestWordsForAnotherNodeAreRefused(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		spoil func(*clusterv1.WatchResponse)
		says  string
	}{
		"another node's record": {func(r *clusterv1.WatchResponse) { r.Node.Id = "reeve-other" }, `sent the record of node "reeve-other"`},
		"no record":             {func(r *clusterv1.WatchResponse) { r.Node = nil }, `sent the record of node ""`},
		"a damaged CA":          {func(r *clusterv1.WatchResponse) { r.CaCertificates = [][]byte{{1}} }, "damaged CA certificate"},
		"a short owner key":     {func(r *clusterv1.WatchResponse) { r.OwnerPublicKey = []byte{1} }, "owner key of 1 bytes"},
	}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			c := newCurator(n.ca.curatorCertificate())
			response := n.response(7)
			test.spoil(response)
			c.view.Set(response)
			listener, address := listenTCP(t)
			defer c.serve(t, listener)()
			n.curatorAt("i1", address)
			defer n.run()()
			n.reason(func(reason string) bool { return strings.Contains(reason, test.says) })
			if view, ok := n.client.View().Get(); ok {
				t.Errorf("it was published: %+v", view)
			}
			if credentials, ok := n.client.Credentials().Get(); ok {
				t.Errorf("it was published: %+v", credentials)
			}
			c.view.Set(n.response(8))
			n.contact(true)
		})
	}
}

func TestCuratorsOfOtherNodesAreListedAfterTheOwn(t *testing.T) {
	n, c := start(t)
	provided, _ := n.capabilities.Get()
	own := provided[roles.CapabilityCluster].Endpoints[1].GetAddress()
	serves := func(addresses ...string) []*hostv1.DirectoryRole {
		list := []*hostv1.DirectoryRole{{Role: "lighthouse", Endpoints: []*rolev1.Endpoint{{Name: "http", Address: "10.0.0.9:80"}}}}
		for _, address := range addresses {
			list = append(list, &hostv1.DirectoryRole{Role: "curator", Endpoints: []*rolev1.Endpoint{{Name: roles.CapabilityCluster, Address: address}}})
		}
		return list
	}
	response := n.response(8)
	response.Directory.Nodes = []*hostv1.DirectoryNode{
		{NodeId: "reeve-00", Roles: serves("10.0.0.2:7000")},
		{NodeId: nodeID(n.key), Roles: serves("127.0.0.1:9")}, // of an instance that is gone
		{NodeId: "reeve-zz", Roles: serves("10.0.0.3:7000", own)},
	}
	c.view.Set(response)
	want := []string{own, "10.0.0.2:7000", "10.0.0.3:7000"}
	await(t, n.client.Curators(), func(list []string) bool { return slices.Equal(list, want) })
	n.capabilities.Set(nil)
	await(t, n.client.Curators(), func(list []string) bool { return slices.Equal(list, []string{"10.0.0.2:7000", "10.0.0.3:7000", own}) })
}

func TestRunMayBeCalledAgain(t *testing.T) {
	n := newNode(t, nil)
	c := newCurator(n.ca.curatorCertificate())
	c.view.Set(n.response(7))
	listener, address := listenTCP(t)
	t.Cleanup(c.serve(t, listener))
	n.curatorAt("i1", address)
	n.status.Set(reported("1"))
	for run := range 2 {
		stop := n.run()
		n.contact(true)
		await(t, &c.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == run+1 })
		stop()
	}
}
