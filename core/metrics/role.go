package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// The roles and their processes.
var (
	roleInfo        = describe("role_info", "What the role is; always 1.", "role", "plugin", "version", "instance")
	roleState       = describe("role_state", "The state of the role on this node: 1 for the one that it is in, 0 for the others.", "role", "state")
	roleRestarts    = describe("role_restarts_total", "How often the role was started again after it ended by itself, since the core started.", "role")
	roleLastFailure = describe("role_last_failure_time_seconds", "When the role last ended by itself on this node, in seconds of the Unix epoch.", "role")
	roleFailures    = describe("role_failures", "Failures of the role within the window of its crash budget when it last failed; 0 once that window has passed.", "role")
	roleBudget      = describe("role_crash_budget_failures", "How many failures the role may have within the window of its crash budget.", "role")
	roleWindow      = describe("role_crash_budget_window_seconds", "How long a failure counts towards the crash budget of the role.", "role")
	roleStart       = describe("role_start_time_seconds", "When the role's process was started, in seconds of the Unix epoch.", "role")
	roleProcesses   = describe("role_processes", "Processes of the role: those of its process group.", "role")
	roleMemory      = describe("role_resident_memory_bytes", "Resident memory of the role's processes.", "role")
	roleCPU         = describe("role_cpu_seconds_total", "CPU time of the role's processes since they started, in user and in system mode.", "role")
	roleFDs         = describe("role_open_fds", "Open file descriptors of the role's processes.", "role")
	roleTier        = describe("role_tier", "How far the sandbox of the role is open: 1 for the tier that it has, 0 for the others.", "role", "tier")
	roleRolledBack  = describe("role_rolled_back", "1 while the node runs the version before that of the catalog, since that one did not come to work here.", "role")
)

// tiers are as they are called in what people read: granted, and not TIER_GRANTED.
var tiers = lower(namesOf(clusterv1.Tier_name, "TIER_"))

func lower(names map[int32]string) map[int32]string {
	for number, name := range names {
		names[number] = strings.ToLower(name)
	}
	return names
}

// roleCollector shows the instances of the node and their processes.
type roleCollector struct {
	now    *present
	budget func(role string) roles.Budget
}

// Describe implements prometheus.Collector. What is shown depends on what runs, and is checked when it is gathered.
func (*roleCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *roleCollector) Collect(to chan<- prometheus.Metric) {
	usage := usageOf(c.now.instances)
	for _, instance := range c.now.instances {
		status := instance.Status
		role := status.GetRole()
		to <- gauge(roleInfo, 1, role, status.GetPlugin(), status.GetPluginVersion(), status.GetInstanceId())
		for number, name := range statesOfRoles {
			to <- gauge(roleState, truth(hostv1.InstanceState(number) == status.GetState()), role, name)
		}
		for number, name := range tiers {
			to <- gauge(roleTier, truth(clusterv1.Tier(number) == status.GetTier()), role, name)
		}
		to <- gauge(roleRolledBack, truth(status.GetRolledBack() != nil), role)
		to <- prometheus.MustNewConstMetric(roleRestarts, prometheus.CounterValue, float64(status.GetRestarts()), role)
		c.collectFailures(to, role, status.GetLastFailure())
		if status.GetStarted() != nil {
			to <- gauge(roleStart, seconds(status.GetStarted().AsTime()), role)
		}
		if u, ok := usage[role]; ok {
			to <- gauge(roleProcesses, float64(u.processes), role)
			to <- gauge(roleMemory, float64(u.resident), role)
			to <- prometheus.MustNewConstMetric(roleCPU, prometheus.CounterValue, u.cpu, role)
			if u.fdsKnown {
				to <- gauge(roleFDs, float64(u.fds), role)
			}
		}
	}
}

func (c *roleCollector) collectFailures(to chan<- prometheus.Metric, role string, last *clusterv1.Failure) {
	failures := 0.0
	if last != nil {
		to <- gauge(roleLastFailure, seconds(last.GetTime().AsTime()), role)
		if time.Since(last.GetTime().AsTime()) < last.GetWindow().AsDuration() {
			failures = float64(last.GetFailures())
		}
	}
	to <- gauge(roleFailures, failures, role)
	if c.budget == nil {
		return
	}
	budget := c.budget(role)
	to <- gauge(roleBudget, float64(max(budget.Failures, 0)), role)
	window := budget.Window
	if window <= 0 {
		window = roles.DefaultBudgetWindow
	}
	to <- gauge(roleWindow, window.Seconds(), role)
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
