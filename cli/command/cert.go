package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) cert() *cobra.Command {
	return group("cert", "The certificates of the cluster", c.certList(), c.certRotate())
}

func (c *commands) certList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the certificates that the cluster has issued and that are in use",
		Long:  "list shows the certificates of the CA, of nodes, of role instances and of curators, with what is left of their time, and where the rotation of the CA stands.",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			response, err := cluster.ListCertificates(ctx)
			return c.answer(output.Certificates{ListCertificatesResponse: response}, err)
		}),
	}
}

func (c *commands) certRotate() *cobra.Command {
	cmd := group("rotate", "Put a new CA in the place of the old one, in three steps",
		c.certStep("prepare", clusterv1.CAStep_CA_STEP_PREPARE, "Make a new CA, and make it known to all nodes",
			"prepare makes a new CA, which all nodes trust besides the old one, and which does not sign yet. It is the first step of three; \"activate\" is next."),
		c.certStep("activate", clusterv1.CAStep_CA_STEP_ACTIVATE, "Sign by the new CA",
			"activate has the new CA sign, while the old one is still trusted. It waits for every node to know the new one, and says for which. \"retire\" is next."),
		c.certStep("retire", clusterv1.CAStep_CA_STEP_RETIRE, "Forget the old CA",
			"retire forgets the old CA: what it signed is refused from then on. It waits for every node to have a certificate of the new one, and says for which."))
	cmd.Long = `rotate puts a new CA in the place of the old one without an interruption: prepare, activate, retire, each once every node has come far enough. Between them any time
may go by; "reeve cert list" shows where it stands.`
	return cmd
}

func (c *commands) certStep(name string, step clusterv1.CAStep, short, long string) *cobra.Command {
	return rotationStep(name, short, long, "take the step although nodes are not ready: those that do not come back in time have to be deleted and added anew", func(ctx context.Context, force, dryRun bool) error {
		return c.withTarget(ctx, func(cluster *target.Target) error {
			response, err := cluster.API().RotateCA(ctx, &clusterv1.RotateCARequest{Step: step, Force: force, DryRun: dryRun})
			return c.answer(output.NewCARotation(name, force, dryRun, response), fault.FromRPC(err, "cannot take the step "+name+" of the rotation of the CA",
				"`reeve cert list` shows where the rotation stands, `reeve node list` the nodes. --force goes on without nodes that are not ready, and says who is left out."))
		})
	})
}

// rotationStep makes the command for one step of a rotation. forced is the help text of --force.
func rotationStep(name, short, long, forced string, take func(ctx context.Context, force, dryRun bool) error) *cobra.Command {
	var force, dryRun bool
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		RunE:  func(cmd *cobra.Command, _ []string) error { return take(cmd.Context(), force, dryRun) },
	}
	cmd.Flags().BoolVar(&force, "force", false, forced)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}
