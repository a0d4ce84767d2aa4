package metrics_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

func TestNode(t *testing.T) {
	var id event.Value[*identity.Identity]
	n := start(t, metrics.Config{Identity: &id, Budget: func(role string) roles.Budget {
		if role == "ant" {
			return roles.Budget{Failures: 3, Window: time.Minute}
		}
		return roles.Budget{Failures: -1}
	}})
	// Before anything is known, the core's own process is.
	if s := n.scrape(t); s.value("process_open_fds") == 0 || s.value("go_goroutines") == 0 || strings.Contains(s.text, "go_memstats_alloc") {
		t.Errorf("of the core's own process:\n%s", s.text)
	}
	n.status.Set(&nodev1.Status{
		NodeId:     "reeve-1",
		Membership: &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT, ClusterId: "c"},
		Node:       &clusterv1.NodeStatus{Version: "1.2.3", Isolation: clusterv1.Isolation_ISOLATION_SHARED_UID, Volume: "plain", Missing: []*clusterv1.Missing{{Name: "own-uid"}}},
		Store: &consensusv1.StoreStatus{
			Formed: true, LeaderId: "1", Voter: true, DatabaseSize: 4096, DatabaseInUse: 1024, Quota: 8192, LeaderChanges: 3, Problem: "full",
			Usage: []*consensusv1.UserUsage{
				{ConsensusUser: "ant", Bytes: 5, BytesQuota: 10, Leases: 2, LeasesQuota: 3, Refused: 4}, {ConsensusUser: "curator", Bytes: 7}, {ConsensusUser: "ant"},
			},
			Members: []*consensusv1.StoreMember{{Id: "1"}, {Id: "2", Learner: true, Damage: "it differs"}, {Id: "3"}},
		},
	})
	id.Set(&identity.Identity{NodeID: "reeve-1"})
	s := n.scrape(t)
	if strings.Contains(s.text, "reeve_node_svid_not_after_seconds") {
		t.Errorf("a node without an SVID has one that ends:\n%s", s.text)
	}
	s.want(`reeve_node_problem 0`)
	degraded, _ := n.status.Get()
	degraded = proto.CloneOf(degraded)
	degraded.Node.Problem = "the volume takes no writes"
	n.status.Set(degraded)
	id.Set(&identity.Identity{NodeID: "reeve-1", SVID: &tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(1800000000, 0)}}})
	now := time.Now()
	failure := &clusterv1.Failure{Time: timestamppb.New(now.Add(-time.Second)), Failures: 2, Window: durationpb.New(time.Hour)}
	old := &clusterv1.Failure{Time: timestamppb.New(now.Add(-time.Hour)), Failures: 2, Window: durationpb.New(time.Minute)}
	n.instances.Set(roles.Instances{
		{Status: &clusterv1.InstanceStatus{
			Tier: clusterv1.Tier_TIER_GRANTED, RolledBack: &clusterv1.RolledBack{Version: "0.2.0"},
			Role: "ant", State: hostv1.InstanceState_INSTANCE_STATE_BACKOFF, Restarts: 2, Plugin: "insects", PluginVersion: "0.1.0",
			InstanceId: "reeve-1/ant/7", LastFailure: failure, Started: timestamppb.New(time.Unix(1700000000, 500_000_000)),
		}},
		{Status: &clusterv1.InstanceStatus{Role: "bee", State: hostv1.InstanceState_INSTANCE_STATE_READY, LastFailure: old}},
	})
	recorder := n.Recorder(nil)
	for _, kind := range []string{"RoleCrashed", "RoleCrashed", "RoleFailed"} {
		recorder.Record(&nodev1.Event{Type: kind, Role: "ant", Details: map[string]string{"out_of_memory": "true"}})
	}
	s = n.until(t, `reeve_role_state{role="ant",state="Backoff"} 1`)
	s.want(
		`reeve_node_problem 1`,
		`reeve_node_info{cluster="c",isolation="shared-uid",node="reeve-1",version="1.2.3",volume="plain"} 1`,
		`reeve_node_svid_not_after_seconds 1.8e+09`,
		`reeve_membership_state{state="Split"} 1`, `reeve_membership_state{state="Home"} 0`,
		`reeve_store_database_size_bytes 4096`, `reeve_store_database_in_use_bytes 1024`, `reeve_store_quota_bytes 8192`,
		`reeve_store_leader_changes_total 3`, `reeve_store_has_leader 1`, `reeve_store_quorum 0`, `reeve_store_voter 1`, `reeve_store_problem 1`, `reeve_store_damaged_members 1`,
		`reeve_store_members{kind="voter"} 2`, `reeve_store_members{kind="learner"} 1`,
		`reeve_role_info{instance="reeve-1/ant/7",plugin="insects",role="ant",version="0.1.0"} 1`,
		`reeve_role_state{role="ant",state="Ready"} 0`, `reeve_role_state{role="bee",state="Ready"} 1`,
		`reeve_role_restarts_total{role="ant"} 2`, `reeve_role_restarts_total{role="bee"} 0`,
		`reeve_role_failures{role="ant"} 2`, `reeve_role_failures{role="bee"} 0`,
		`reeve_role_crash_budget_failures{role="ant"} 3`, `reeve_role_crash_budget_window_seconds{role="ant"} 60`,
		`reeve_role_crash_budget_failures{role="bee"} 0`, `reeve_role_crash_budget_window_seconds{role="bee"} 600`,
		`reeve_role_start_time_seconds{role="ant"} 1.7000000005e+09`,
		`reeve_node_sandbox_missing{part="own-uid"} 1`, `reeve_role_tier{role="ant",tier="granted"} 1`, `reeve_role_tier{role="ant",tier="confined"} 0`,
		`reeve_role_rolled_back{role="ant"} 1`, `reeve_role_rolled_back{role="bee"} 0`, `reeve_role_out_of_memory_total{role="ant"} 2`,
		`reeve_store_user_bytes{user="ant"} 5`, `reeve_store_user_bytes_quota{user="ant"} 10`, `reeve_store_user_leases{user="ant"} 2`,
		`reeve_store_user_leases_quota{user="ant"} 3`, `reeve_store_user_refused_total{user="ant"} 4`, `reeve_store_user_bytes{user="curator"} 7`,
	)
	if at := s.value(`reeve_role_last_failure_time_seconds{role="ant"}`); at < float64(now.Unix()-2) || at > float64(now.Unix()) {
		t.Errorf("the last failure was at %f", at)
	}
	states := 0
	for line := range strings.Lines(s.text) {
		if strings.HasPrefix(line, `reeve_role_state{role="ant"`) {
			states++
		}
	}
	if want := len(hostv1.InstanceState_name) - 1; states != want {
		t.Errorf("%d states, want %d", states, want)
	}
}

// TestLint checks the node's own names and texts against the habits of Prometheus, and that nothing but values changes between scrapes.
func TestLint(t *testing.T) {
	n := speaking(t, map[string]string{"ant": good, "bad": "x"})
	n.status.Set(&nodev1.Status{Store: &consensusv1.StoreStatus{Formed: true}})
	n.Recorder(nil).Record(&nodev1.Event{Type: "CoreStarted"})
	n.Launched("ant", time.Second)
	first := n.until(t, `reeve_role_scrape_up{role="ant"} 1`)
	problems, err := promlint.New(strings.NewReader(first.text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if a, b := seriesOf(first.text), seriesOf(n.scrape(t).text); !slices.Equal(a, b) {
		t.Errorf("the series differ: %s", cmp.Diff(a, b))
	}
}

func seriesOf(text string) []string {
	var series []string
	for line := range strings.Lines(text) {
		if line[0] != '#' {
			line = line[:strings.LastIndexByte(line, ' ')]
		}
		series = append(series, line)
	}
	return series
}

// events keeps what it is given.
type events []*nodev1.Event

func (e *events) Record(event *nodev1.Event) { *e = append(*e, event) }

func TestTold(t *testing.T) {
	n := start(t, metrics.Config{})
	var kept events
	recorder := n.Recorder(&kept)
	for range 2 {
		recorder.Record(&nodev1.Event{Type: "RoleCrashed", Severity: nodev1.Severity_SEVERITY_WARNING, Role: "ant"})
	}
	recorder.Record(&nodev1.Event{Type: "CoreStarted\xff", Severity: nodev1.Severity_SEVERITY_INFO})
	n.Launched("ant", 70*time.Millisecond)
	n.Launched("ant", time.Minute)
	n.scrape(t).want(
		`reeve_events_total{role="ant",severity="warning",type="RoleCrashed"} 2`,
		"reeve_events_total{role=\"\",severity=\"info\",type=\"CoreStarted\uFFFD\"} 1",
		`reeve_role_launch_duration_seconds_bucket{role="ant",le="0.1"} 1`,
		`reeve_role_launch_duration_seconds_count{role="ant"} 2`,
	)
	if len(kept) != 3 || kept[0].GetRole() != "ant" {
		t.Errorf("the next recorder was given %v", kept)
	}
}

// TestProcesses counts the processes of a role: those of its process group, and never those of another process that has its PID by now.
func TestProcesses(t *testing.T) {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), asProcesses+"=leader")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
	}()
	lines := bufio.NewReader(stdout)
	for range 2 { // both are up
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, metrics.Config{})
	started := startOf(t, command.Process.Pid)
	instance := func(role string, process *plugin.Process) roles.Instance {
		return roles.Instance{Status: &clusterv1.InstanceStatus{Role: role}, Process: process}
	}
	n.instances.Set(roles.Instances{
		instance("ant", process(command, started)), instance("bee", process(command, started-1)), instance("cow", nil),
	})
	s := n.until(t, `reeve_role_processes{role="ant"} 2`)
	if memory := s.value(`reeve_role_resident_memory_bytes{role="ant"}`); memory < 1<<20 || memory > 1<<30 {
		t.Errorf("%f bytes of memory", memory)
	}
	if fds := s.value(`reeve_role_open_fds{role="ant"}`); fds < 6 || fds > 100 {
		t.Errorf("%f file descriptors", fds)
	}
	if cpu := s.value(`reeve_role_cpu_seconds_total{role="ant"}`); cpu < 0 || cpu > 100 {
		t.Errorf("%f seconds of CPU", cpu)
	}
	for _, role := range []string{"bee", "cow"} {
		if strings.Contains(s.text, `reeve_role_resident_memory_bytes{role="`+role) {
			t.Errorf("%s has memory without a process", role)
		}
	}
}

// startOf is field 22 of /proc/PID/stat.
func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	started, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// TestDocumented looks every metric of the node's own up in the reference.
func TestDocumented(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	n := speaking(t, map[string]string{"ant": good, "bad": "x"})
	n.status.Set(&nodev1.Status{Store: &consensusv1.StoreStatus{Formed: true}})
	n.Recorder(nil).Record(&nodev1.Event{})
	n.Launched("ant", time.Second)
	found := 0
	for line := range strings.Lines(n.until(t, `reeve_role_scrape_up{role="ant"} 1`).text) {
		if name, ok := strings.CutPrefix(line, "# TYPE reeve_"); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(name), " ")
			found++
			if !strings.Contains(string(reference), "| `reeve_"+name+"` | "+kind+" |") {
				t.Errorf("docs/reference/metrics.md does not have reeve_%s, a %s", name, kind)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d metrics", found)
	}
}
