package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
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
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				policy, nodes, err := getPolicy(cmd.Context(), cluster)
				if err != nil {
					return err
				}
				return c.print(output.NewPolicy(policy, nodes))
			})
		},
	}
}

func getPolicy(ctx context.Context, cluster *target.Target) (*clusterv1.ClusterPolicy, []*clusterv1.Node, error) {
	nodes, err := listNodes(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	management, err := cluster.Management(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := management.GetPolicy(ctx, &clusterv1.GetPolicyRequest{})
	if err != nil {
		return nil, nil, fault.FromRPC(err, "the policy cannot be had", "")
	}
	return response.GetPolicy(), nodes, nil
}

// isolationPolicies are what may be demanded, by the words that people write.
var isolationPolicies = map[string]clusterv1.IsolationPolicy{
	"best-effort": clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT,
	"required":    clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED,
}

func (c *commands) policySet() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE",
		Short: "Change what the owner demands of all nodes",
		Long: `set changes the policy of the cluster. With isolation=required a role does not run on a node that cannot enforce its whole sandbox: it is Blocked there, with
the list of what is missing. The roles that provide the store and the cluster API run all the same, since without them nobody could change the policy. With
isolation=best-effort, which is so at first, roles run, and the node's status lists what is missing.`,
		Example: `  reeve policy set isolation=required
  reeve policy set isolation=best-effort --dry-run`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			name, value, _ := strings.Cut(given[0], "=")
			isolation, ok := isolationPolicies[value]
			if name != "isolation" || !ok {
				return fault.New(fault.Usage, given[0]+" is nothing that can be demanded", "Give isolation=required or isolation=best-effort.")
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.setPolicy(cmd.Context(), cluster, isolation, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, fixed("isolation=best-effort", "isolation=required"))
	return cmd
}

func (c *commands) setPolicy(ctx context.Context, cluster *target.Target, isolation clusterv1.IsolationPolicy, dryRun bool) error {
	present, nodes, err := getPolicy(ctx, cluster)
	if err != nil {
		return err
	}
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := management.SetPolicy(bounded, &clusterv1.SetPolicyRequest{
		Policy: &clusterv1.ClusterPolicy{Isolation: isolation, Generation: present.GetGeneration()}, DryRun: dryRun,
	})
	if err != nil {
		next := "Run `reeve policy show` to see how it is."
		if status.Code(err) == codes.Aborted {
			next = "Somebody has changed it meanwhile: run `reeve policy show`, and the command again."
		}
		return fault.FromRPC(err, "the policy cannot be changed", next)
	}
	return c.print(output.PolicyChange{Policy: output.NewPolicy(response.GetPolicy(), nodes), DryRun: dryRun})
}
