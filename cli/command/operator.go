package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) operator() *cobra.Command {
	cmd := group("operator", "Who may operate the cluster", c.operatorAdd(), c.operatorList(), c.operatorRevoke(),
		c.newKey("operator"))
	cmd.Long = `An operator is somebody who may call the cluster API, by a key of their own and in one of three roles:

  owner     everything
  operator  change what nodes run, but not who may do what, nor which plugins there are
  viewer    read

To become one, make a key (reeve operator key FILE) and give its public half to an owner, who adds you (reeve operator add); then log in
(reeve login --key FILE).`
	return cmd
}

// operatorRoles are the roles of operators, by the names that people write.
var operatorRoles = map[string]clusterv1.OperatorRole{
	"owner":    clusterv1.OperatorRole_OPERATOR_ROLE_OWNER,
	"operator": clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR,
	"viewer":   clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER,
}

func (c *commands) operatorAdd() *cobra.Command {
	var roleName, public string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "add NAME --role ROLE --public-key KEY",
		Short: "Let somebody operate the cluster",
		Long: `add makes an operator, who then logs in with the private half of the key. Only an owner can. A name that is taken is refused, unless key and role are the
same; to change them, revoke the operator first.

KEY is the public key as ` + "`reeve operator key`" + ` prints it, or the name of a file that holds it so, or as PEM.`,
		Example: `  reeve operator add alice --role operator --public-key wS2c…=
  reeve operator add audit-bot --role viewer --public-key bot.pub`,
		RunE: func(cmd *cobra.Command, given []string) error {
			name := given[0]
			if !identity.ValidName(name) {
				return fault.New(fault.Usage, fmt.Sprintf("no operator can be called %q", name), "A name has 1 to 32 of a-z, 0-9 and -, and begins with a letter.")
			}
			role, ok := operatorRoles[roleName]
			if !ok {
				return fault.New(fault.Usage, fmt.Sprintf("%q is no role of operators", roleName), "Give --role owner, operator or viewer.")
			}
			if public == "" {
				return fault.New(fault.Usage, "an operator is known by a key, and none is given", "Give --public-key; `reeve operator key FILE` makes a key.")
			}
			key, err := keyfile.Public(public)
			if err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				response, err := cluster.API().AddOperator(cmd.Context(), &clusterv1.AddOperatorRequest{Name: name, Role: role, PublicKey: key, DryRun: dryRun})
				if err != nil {
					return fault.FromRPC(err, "cannot add operator "+name,
						"`reeve operator list` shows the operators; `reeve operator revoke "+name+"` removes one.")
				}
				if err := c.print(output.OperatorChange{Operator: response.GetOperator(), Change: "added", DryRun: dryRun}); err != nil {
					return err
				}
				if !dryRun {
					c.say(fmt.Sprintf("From elsewhere %s logs in with `reeve login --address %s --ca FILE --key FILE`; `reeve ca` prints what the file with the CA holds.",
						name, first(cluster.Curators())))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&roleName, "role", "", "what the operator may do: `owner|operator|viewer`")
	cmd.Flags().StringVar(&public, "public-key", "", "the operator's public key, or a `FILE` with it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, and change nothing")
	complete(cmd, "role", fixed("owner", "operator", "viewer"))
	return cmd
}

func (c *commands) operatorList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the operators of the cluster",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			response, err := cluster.API().ListOperators(ctx, &clusterv1.ListOperatorsRequest{})
			return c.answer(output.Operators{OwnerPublicKey: response.GetOwnerPublicKey(), Operators: response.GetOperators()}, fault.FromRPC(err, "cannot list the operators", ""))
		}),
	}
}

func (c *commands) operatorRevoke() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Let somebody operate the cluster no more",
		Long: `revoke removes an operator: every certificate that the cluster issued to it is refused from the next call on, and every ticket that it made. Machines that have
registered with such a ticket and are no members yet never become members; revoke says which they are. Only an owner can. Somebody who is added again under the same name is another operator.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			response, err := cluster.API().RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: given[0], DryRun: dryRun})
			return c.answer(output.NewOperatorRevoked(response, dryRun), fault.FromRPC(err, "cannot revoke operator "+given[0], "Run `reeve operator list` to see the operators."))
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, and change nothing")
	completeArguments(cmd, completed(c, func(ctx context.Context, cluster *target.Target, _ []string) ([]*clusterv1.Operator, error) {
		response, err := cluster.API().ListOperators(ctx, &clusterv1.ListOperatorsRequest{})
		return response.GetOperators(), err
	}, func(operator *clusterv1.Operator) (string, string) {
		return operator.GetName(), output.Kind(operator.GetRole())
	}))
	return cmd
}

// newKey is the command that makes a key for an operator or an owner.
func (c *commands) newKey(whose string) *cobra.Command {
	next := "Give the public key to an owner, who runs `reeve operator add NAME --role ROLE --public-key %s`; then log in: `reeve login --key %s`."
	long := `key makes an Ed25519 key pair. The private half is written to FILE, which only you may read and which must not be there yet; keep it. The public half is
printed, for an owner, who adds you with it.`
	if whose == "owner" {
		next = "On a node of the trusted base, as root: `reeve owner replace --socket PATH --public-key %s`. Keep %s where no machine of the cluster can read it."
		long = `key makes an Ed25519 key pair for the cluster's owner. The private half is written to FILE, which only you may read and which must not be there yet: keep it
offline. The public half is printed, for ` + "`reeve owner replace`" + ` or ` + "`reeve init --owner-public-key`" + `.`
	}
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key for an " + whose,
		Long:  long,
		RunE: func(_ *cobra.Command, given []string) error {
			public, err := keyfile.Create(given[0])
			if err != nil {
				return err
			}
			text := keyfile.Text(public)
			if err := c.print(output.Key{File: given[0], PublicKey: text}); err != nil {
				return err
			}
			c.say(fmt.Sprintf(next, text, given[0]))
			return nil
		},
	}
}

func (c *commands) whoami() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show as whom the cluster knows you",
		Long:  "whoami asks the cluster as whom it knows you and what it lets you do now. `reeve context show` shows what is kept on this machine.",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			caller, err := cluster.Caller()
			if err != nil {
				return err
			}
			operators, err := cluster.API().ListOperators(ctx, &clusterv1.ListOperatorsRequest{})
			if err != nil {
				return fault.FromRPC(err, "the cluster does not say who you are", "")
			}
			info, err := cluster.API().GetClusterInfo(ctx, &clusterv1.GetClusterInfoRequest{})
			if err != nil {
				return fault.FromRPC(err, "the cluster does not say which one it is", "")
			}
			document := output.WhoAmI{Cluster: info.GetClusterId(), Context: cluster.Context(), Session: output.NewSession(caller.Session, c.Now())}
			document.Operator, document.Role = callerRole(caller, operators)
			return c.print(document)
		}),
	}
}

// callerRole is as whom the cluster let a call through, and in which role.
func callerRole(caller target.Caller, operators *clusterv1.ListOperatorsResponse) (operator, role string) {
	if caller.Session == nil || caller.Session.Operator == "" {
		return "", "owner"
	}
	for _, record := range operators.GetOperators() {
		if record.GetName() == caller.Session.Operator && record.GetId() == caller.Session.ID {
			return record.GetName(), output.Kind(record.GetRole())
		}
	}
	// It was let through a moment ago, and is revoked now.
	return caller.Session.Operator, ""
}

// first is the first of several addresses.
func first(addresses []string) string {
	if len(addresses) == 0 {
		return "HOST:PORT"
	}
	return addresses[0]
}
