package command

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) policy() *cobra.Command {
	return group("policy", "What the owner demands of all nodes", c.policyShow(), c.policySet())
}

func (c *commands) policyShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show what the owner demands of all nodes",
		Long:  "show shows the policy of the cluster, and the nodes that cannot enforce every part of a sandbox.",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			policy, nodes, err := getPolicy(ctx, cluster)
			if err != nil {
				return err
			}
			return c.print(output.NewPolicy(policy, nodes))
		}),
	}
}

func getPolicy(ctx context.Context, cluster *target.Target) (*clusterv1.ClusterPolicy, []*clusterv1.Node, error) {
	nodes, err := cluster.ListNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	response, err := cluster.API().GetPolicy(ctx, &clusterv1.GetPolicyRequest{})
	if err != nil {
		return nil, nil, fault.FromRPC(err, "cannot read the policy", "")
	}
	return response.GetPolicy(), nodes, nil
}

// isolationPolicies are what may be demanded, by the words that people write.
var isolationPolicies = map[string]clusterv1.IsolationPolicy{
	"best-effort": clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT,
	"required":    clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED,
}

// conformancePolicies are whether reports of the conformance suite are demanded, by the words that people write.
var conformancePolicies = map[string]clusterv1.ConformancePolicy{
	"optional": clusterv1.ConformancePolicy_CONFORMANCE_POLICY_OPTIONAL,
	"required": clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED,
}

// sourceName is what a source of the cluster's half of a volume's key may be called.
var sourceName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

const demands = "Give isolation=required, isolation=best-effort, conformance=required, conformance=optional, recovery-recipient=age1…, snapshots=interval=6h,keep=7, snapshots=off, or cuk-sources= with a list such as cluster,recovery,tpm, or all."

// parseDemand reads what is demanded, and returns what makes it part of a policy.
func parseDemand(text string) (func(*clusterv1.ClusterPolicy), error) {
	name, value, _ := strings.Cut(text, "=")
	switch name {
	case "isolation":
		if isolation, ok := isolationPolicies[value]; ok {
			return func(policy *clusterv1.ClusterPolicy) { policy.Isolation = isolation }, nil
		}
	case "conformance":
		if conformance, ok := conformancePolicies[value]; ok {
			return func(policy *clusterv1.ClusterPolicy) { policy.Conformance = conformance }, nil
		}
	case "recovery-recipient":
		if err := recovery.CheckRecipient(value, name); err != nil {
			return nil, err
		}
		return func(policy *clusterv1.ClusterPolicy) { policy.RecoveryRecipient = value }, nil
	case "snapshots":
		schedule, err := parseSchedule(value)
		if err != nil {
			return nil, err
		}
		return func(policy *clusterv1.ClusterPolicy) { policy.Snapshots = schedule }, nil
	case "cuk-sources":
		if value == "all" {
			return func(policy *clusterv1.ClusterPolicy) { policy.CukSources = nil }, nil
		}
		sources := strings.Split(value, ",")
		slices.Sort(sources)
		sources = slices.Compact(sources)
		if slices.ContainsFunc(sources, func(source string) bool { return !sourceName.MatchString(source) }) {
			break
		}
		if !slices.Contains(sources, recovery.Source) {
			return nil, fault.New(fault.Usage, "cuk-sources without "+recovery.Source+" would leave a node locked for good when its other sources fail",
				"Give cuk-sources="+recovery.Source+","+value+".")
		}
		return func(policy *clusterv1.ClusterPolicy) { policy.CukSources = sources }, nil
	}
	return nil, fault.New(fault.Usage, text+" is nothing that can be demanded", demands)
}

const scheduleNext = "Give snapshots=interval=6h,keep=7, or snapshots=off."

// parseSchedule reads when snapshots are to be taken; nil: never. The cluster knows the bounds.
func parseSchedule(text string) (*clusterv1.SnapshotSchedule, error) {
	if text == "off" {
		return nil, nil
	}
	wrong := func(what string) error { return fault.New(fault.Usage, "snapshots="+text+" "+what, scheduleNext) }
	schedule := new(clusterv1.SnapshotSchedule)
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "interval":
			interval, err := time.ParseDuration(value)
			if err != nil || interval <= 0 || interval%time.Second != 0 {
				return nil, wrong("has no interval such as 6h or 30m")
			}
			schedule.IntervalSeconds = int64(interval / time.Second)
		case "keep":
			keep, err := strconv.ParseUint(value, 10, 32)
			if err != nil || keep == 0 {
				return nil, wrong("does not say how many are kept, such as keep=7")
			}
			schedule.Keep = uint32(keep)
		default:
			return nil, wrong("is not a schedule: it has " + strconv.Quote(part))
		}
	}
	if schedule.GetIntervalSeconds() == 0 || schedule.GetKeep() == 0 {
		return nil, wrong("needs an interval and how many are kept")
	}
	return schedule, nil
}

func (c *commands) policySet() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE",
		Short: "Change what the owner demands of all nodes",
		Long: `set changes the policy of the cluster. With isolation=required a role does not run on a node that cannot enforce its whole sandbox: it is Blocked there, with
the list of what is missing. The roles that provide the store and the cluster API run all the same, since without them nobody could change the policy. With
isolation=best-effort, the default, roles run, and the node's status lists what is missing.

With conformance=required no executable gets into the catalog, is approved or gets a role on a node without a report of the conformance suite which says that it conforms
(reeve plugin test --report, reeve plugin add --report). It is refused as long as nodes run an executable without one: reeve plugin report add gives them to those.
With conformance=optional, the default, reports are shown only.

cuk-sources says from where a locked node may get the cluster's half of the key of its volume: recovery, which is always among them (the owner's recovery
key), cluster (a curator, after the node has proved its join key), tpm (the node's own TPM), or all, the default. With cuk-sources=recovery no node opens
its volume by itself after a restart.

recovery-recipient is the public half of the owner's recovery key, to which snapshots of the store are sealed (` + "`reeve store snapshot`" + `). Those that were taken
before stay sealed to the former one.

snapshots has the cluster take snapshots of the store by itself: one is due an interval (10m to 744h, whole minutes) after the last good one, a node that does not lead the store takes
it, restores it into an etcd that is thrown away, and keeps the newest ones on its own disk (` + "`reeve store snapshot list`" + `). It needs a recovery-recipient. With snapshots=off, the
default, none are taken; those that there are stay.`,
		Example: `  reeve policy set isolation=required
  reeve policy set isolation=best-effort --dry-run
  reeve policy set conformance=required
  reeve policy set cuk-sources=recovery
  reeve policy set recovery-recipient=age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
  reeve policy set snapshots=interval=6h,keep=7`,
		RunE: func(cmd *cobra.Command, given []string) error {
			demand, err := parseDemand(given[0])
			if err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.setPolicy(cmd.Context(), cluster, demand, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, fixed("isolation=best-effort", "isolation=required", "conformance=optional", "conformance=required", "cuk-sources=all", "cuk-sources=cluster,recovery", "cuk-sources=cluster,recovery,tpm", "cuk-sources=recovery",
		"cuk-sources=recovery,tpm", "snapshots=interval=6h,keep=7", "snapshots=off"))
	return cmd
}

func (c *commands) setPolicy(ctx context.Context, cluster *target.Target, demand func(*clusterv1.ClusterPolicy), dryRun bool) error {
	present, nodes, err := getPolicy(ctx, cluster)
	if err != nil {
		return err
	}
	// What else is demanded stays as it is, also what this version does not know.
	policy := &clusterv1.ClusterPolicy{}
	if present != nil {
		policy = proto.CloneOf(present)
	}
	demand(policy)
	response, err := cluster.API().SetPolicy(ctx, &clusterv1.SetPolicyRequest{Policy: policy, DryRun: dryRun})
	if err != nil {
		next := "Run `reeve policy show` to see how it is."
		if status.Code(err) == codes.Aborted {
			next = "Somebody has changed it meanwhile: run `reeve policy show`, and the command again."
		}
		return fault.FromRPC(err, "cannot change the policy", next)
	}
	return c.print(output.PolicyChange{Policy: output.NewPolicy(response.GetPolicy(), nodes), DryRun: dryRun})
}
