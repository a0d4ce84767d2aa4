package cluster_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// published is a status with two roles: a flooding one, and one that says little.
func published(value, endpoint string, quiet hostv1.InstanceState) *clusterv1.NodeStatus {
	return &clusterv1.NodeStatus{Version: "1", Instances: []*clusterv1.InstanceStatus{
		{
			Role: "flood", State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 7, Reason: value, Values: map[string]string{"v": value},
			Endpoints: []*rolev1.Endpoint{{Name: "e", Address: endpoint}},
		},
		{Role: "quiet", State: quiet, Pid: 8},
	}}
}

// reportTimes are the times at which reports came.
func (s *scene) reportTimes() (times []time.Time) {
	calls, _ := s.curator.calls.Get()
	for _, call := range calls {
		if call.method == "ReportStatus" {
			times = append(times, call.at)
		}
	}
	return times
}

// during calls change every 100 ms of the fake clock.
func during(duration time.Duration, change func(n int)) {
	for n := range int(duration / (100 * time.Millisecond)) {
		change(n)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
}

const (
	starting = hostv1.InstanceState_INSTANCE_STATE_STARTING
	ready    = hostv1.InstanceState_INSTANCE_STATE_READY
)

func TestWhatIsOnlyLookedAtIsReportedRarely(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.status.Set(published("0", "a", starting))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
		during(20*time.Second, func(n int) { s.status.Set(published(fmt.Sprint(n), "a", starting)) })
		s.status.Set(published("last", "a", starting))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool {
			return r[len(r)-1].GetInstances()[0].GetValues()["v"] == "last"
		})
		times := s.reportTimes()
		if len(times) < 10 || len(times) > 12 {
			t.Errorf("%d reports in 20 s", len(times))
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 2*time.Second {
				t.Errorf("report %d came %s after the one before", i, gap)
			}
		}
	})
}

func TestARoleThatChangesItsEndpointsForEverDelaysOnlyItself(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.status.Set(published("0", "a", starting))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
		during(60*time.Second, func(n int) { s.status.Set(published("0", fmt.Sprint(n), starting)) })
		if n := len(s.reportTimes()); n < 30 || n > 50 {
			t.Errorf("%d reports in 60 s", n)
		}
		// A moment after a report, when the flooding role has to wait for two seconds.
		before := len(s.reportTimes())
		for n := 0; len(s.reportTimes()) == before; n++ {
			s.status.Set(published("0", fmt.Sprint("again", n), starting))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		changed := time.Now()
		s.status.Set(published("0", "and again", ready))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool {
			return r[len(r)-1].GetInstances()[1].GetState() == ready
		})
		if took := time.Since(changed); took > 10*time.Millisecond {
			t.Errorf("a change of the other role was reported after %s", took)
		}
		// It was given time to become good: then its changes are urgent again.
		time.Sleep(10 * time.Minute)
		changed = time.Now()
		s.status.Set(published("0", "at last", ready))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool {
			return r[len(r)-1].GetInstances()[0].GetEndpoints()[0].GetAddress() == "at last"
		})
		if took := time.Since(changed); took > 10*time.Millisecond {
			t.Errorf("a change of the first role was reported after %s", took)
		}
	})
}

func TestWhatTheClusterDecidesIsAnsweredAtOnce(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		of := func(generation uint64, pid int64) *clusterv1.NodeStatus {
			return &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "r", ConfigurationGeneration: generation, Pid: pid}}}
		}
		s.status.Set(of(1, 0))
		await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
		during(3*time.Second, func(n int) { s.status.Set(of(1, int64(n))) })
		for generation := uint64(2); generation < 6; generation++ {
			decided := time.Now()
			s.status.Set(of(generation, 0))
			await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool {
				return r[len(r)-1].GetInstances()[0].GetConfigurationGeneration() == generation
			})
			if took := time.Since(decided); took > 10*time.Millisecond {
				t.Errorf("what came of generation %d was reported after %s", generation, took)
			}
			during(time.Second, func(n int) { s.status.Set(of(generation, int64(n))) })
		}
	})
}

func TestAllRolesTogetherAreBoundedToo(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		// One role after the other changes, so that none of them changes too often by itself.
		var changes [64]int64
		during(60*time.Second, func(n int) {
			changes[n%len(changes)]++
			all := &clusterv1.NodeStatus{}
			for role, pid := range changes {
				all.Instances = append(all.Instances, &clusterv1.InstanceStatus{Role: fmt.Sprint("r", role), Pid: pid})
			}
			s.status.Set(all)
		})
		if n := len(s.reportTimes()); n > 64+2+60 {
			t.Errorf("%d reports in 60 s", n)
		}
	})
}

func TestWhatANodeSaysOfItselfIsReported(t *testing.T) {
	home := &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_HOME, Reason: "one"}
	split := &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT, Reason: "one"}
	for name, test := range map[string]struct {
		before, after *clusterv1.NodeStatus
		atOnce        bool
	}{
		"membership": {&clusterv1.NodeStatus{Membership: split}, &clusterv1.NodeStatus{Membership: home}, true},
		"CA pins":    {&clusterv1.NodeStatus{}, &clusterv1.NodeStatus{CaPins: [][]byte{{1}}}, true},
		"state of the volume": {
			&clusterv1.NodeStatus{}, &clusterv1.NodeStatus{Storage: &clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_LOCKED}}, true,
		},
		"reason of the membership": {
			&clusterv1.NodeStatus{Membership: home}, &clusterv1.NodeStatus{Membership: &hostv1.Membership{State: home.State, Reason: "other"}}, false,
		},
		"location of the volume": {&clusterv1.NodeStatus{}, &clusterv1.NodeStatus{Storage: &clusterv1.StorageStatus{Location: "/dev/vdb"}}, false},
		"what is wrong":          {&clusterv1.NodeStatus{}, &clusterv1.NodeStatus{Problem: "an address is taken"}, false},
		"what is missing":        {&clusterv1.NodeStatus{}, &clusterv1.NodeStatus{Missing: []*clusterv1.Missing{{Name: "landlock"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, s *scene) {
				defer s.up("a:1")()
				s.curatorAt("i1", "a:1")
				s.status.Set(test.before)
				await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
				changed := time.Now()
				s.status.Set(test.after)
				await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return proto.Equal(r[len(r)-1], test.after) })
				if took := time.Since(changed); test.atOnce && took > 10*time.Millisecond || took > 2*time.Second {
					t.Errorf("it was reported after %s", took)
				}
			})
		})
	}
}

func TestAReportIsMadeToFit(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		full := &clusterv1.NodeStatus{Version: "1"}
		for n := range 100 {
			full.Addresses = append(full.Addresses, fmt.Sprint("10.0.0.", n))
		}
		for role := range 64 {
			instance := &clusterv1.InstanceStatus{Role: fmt.Sprintf("r%02d", role), State: ready, Pid: 1, Values: map[string]string{}}
			for n := range limits.Endpoints {
				instance.Endpoints = append(instance.Endpoints, &rolev1.Endpoint{Name: fmt.Sprint(n), Address: strings.Repeat("a", limits.Address)})
			}
			for n := range limits.Values {
				instance.Values[fmt.Sprint(n)] = strings.Repeat("v", limits.Value)
			}
			instance.LastFailure = &clusterv1.Failure{Cause: strings.Repeat("c", 1024), Failures: 3}
			for range 8 {
				instance.LastFailure.Lines = append(instance.LastFailure.Lines, strings.Repeat("l", 256))
			}
			full.Instances = append(full.Instances, instance)
		}
		modest := full.Instances[10]
		modest.Values, modest.Endpoints, modest.LastFailure = map[string]string{"small": "value"}, modest.Endpoints[:1], nil
		full.Instances[20].Reason = strings.Repeat("ö", limits.ReportedText)
		untouched := proto.CloneOf(full)
		s.status.Set(full)
		reports := await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 1 })
		if size := proto.Size(reports[0]); size > limits.ReportedPublished+64*4096 || size < limits.ReportedPublished/2 {
			t.Errorf("the report has %d bytes", size)
		}
		if n := len(reports[0].GetAddresses()); n != limits.ReportedAddresses {
			t.Errorf("%d addresses", n)
		}
		if got := reports[0].GetInstances()[10]; !proto.Equal(got, modest) {
			t.Errorf("the modest role lost something: %v", got)
		}
		got := reports[0].GetInstances()[63]
		if len(got.GetValues())+len(got.GetEndpoints()) > 0 || got.GetPid() != 1 ||
			!strings.Contains(got.GetReason(), "its 32 published values are left out: what it publishes has 148076 bytes, and the cluster takes 32768 of a role") ||
			!strings.Contains(got.GetReason(), "its 32 endpoints are left out: the directory takes 65536 bytes") || got.GetLastFailure().GetFailures() != 3 || len(got.GetLastFailure().GetLines()) == 0 {
			t.Errorf("the largest publisher is reported as %v", got)
		}
		if got := reports[0].GetInstances()[20].GetReason(); len(got) > limits.ReportedText {
			t.Errorf("a reason has %d bytes", len(got))
		}
		equal(t, "the status", full, untouched)

		// What is left out does not flood either, and what is taken back is reported again.
		few := proto.CloneOf(full)
		for _, instance := range few.GetInstances() {
			instance.Endpoints, instance.Reason, instance.LastFailure = nil, "", nil
			for n := 2; n < limits.Values; n++ {
				delete(instance.Values, fmt.Sprint(n))
			}
		}
		for _, instance := range few.GetInstances()[3:] {
			instance.Values = nil
		}
		s.status.Set(few)
		reports = await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 2 })
		for i, instance := range reports[1].GetInstances() {
			equal(t, instance.GetRole(), instance, few.GetInstances()[i])
		}
		// The curator of a large cluster has less room, and says so from the next answer on: then those go that publish most.
		synctest.Wait() // for the answer to this one
		s.curator.set(func(r *rules) { r.room = 12 << 10 })
		few = proto.CloneOf(few)
		few.Version, few.Instances[1].Values = "2", map[string]string{"small": "value"}
		s.status.Set(few)
		reports = await(t, &s.curator.reports, func(r []*clusterv1.NodeStatus) bool { return len(r) == 4 })
		instances := reports[3].GetInstances()
		if len(instances[0].GetValues()) != 2 || len(instances[1].GetValues()) != 1 || len(instances[2].GetValues()) != 0 || !strings.Contains(instances[2].GetReason(), "the directory takes 12288 bytes") {
			t.Errorf("with less room: %.200v", instances)
		}
	})
}

func TestARefusedReportIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		n := newNode(t, network.dial)
		var log bytes.Buffer
		n.client = cluster.New(cluster.Config{
			Log: hclog.New(&hclog.LoggerOptions{Output: &log}), Identity: &n.identity, Capabilities: &n.capabilities, Status: &n.status, Dial: network.dial,
			ClockSet: new(event.Value[int]), Incarnation: event.New(&clusterv1.Incarnation{Number: 1}), Known: knowsNone,
		})
		c := newCurator(n.ca.curatorCertificate())
		c.view.Set(n.response(7))
		c.set(func(r *rules) { r.refuseReport = status.Error(codes.InvalidArgument, "status: too colourful") })
		defer c.serve(t, network.listen("a:1"))()
		n.curatorAt("i1", "a:1")
		n.status.Set(reported("1"))
		stop := n.run()
		contact := await(t, n.client.Contact(), func(c membership.Contact) bool { return c.Reason != "" && c.OK })
		if want := "the cluster does not take what this node reports: InvalidArgument: status: too colourful"; contact.Reason != want {
			t.Errorf("the reason is %q", contact.Reason)
		}
		time.Sleep(time.Minute)
		c.set(func(r *rules) { r.refuseReport = nil })
		await(t, n.client.Contact(), func(c membership.Contact) bool { return c == membership.Contact{OK: true} })
		stop()
		if text := log.String(); strings.Count(text, "[WARN]") != 1 || !strings.Contains(text, "worker=report") {
			t.Errorf("the log is:\n%s", text)
		}
	})
}
