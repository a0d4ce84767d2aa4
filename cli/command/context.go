package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

func (c *commands) context() *cobra.Command {
	cmd := group("context", "The clusters that you work with, and as whom", c.contextList(), c.contextUse(), c.contextShow(), c.contextRemove())
	cmd.Long = `A context is how a cluster is reached, and your session there. ` + "`reeve login`" + ` makes one. Contexts are kept in $XDG_CONFIG_HOME/reeve, or
~/.config/reeve.

A command finds its cluster by --dir, --socket or --address; else by --context; else by REEVE_CONTEXT; else it is that of ./var/dev, if that is there; else
that of the current context; else that of the node that is installed on the machine.`
	return cmd
}

func (c *commands) contextList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts",
		RunE: func(*cobra.Command, []string) error {
			config, err := c.options.Contexts.Load()
			if err != nil {
				return err
			}
			document := output.Contexts{Contexts: []output.Context{}}
			for _, context := range config.Contexts {
				document.Contexts = append(document.Contexts, c.describeContext(context, config.Current))
			}
			return c.print(document)
		},
	}
}

// describeContext makes the document of a context. A session that cannot be read does not keep the rest from being shown.
func (c *commands) describeContext(context contexts.Context, current string) output.Context {
	session, err := c.options.Contexts.Session(context.Name)
	if errors.Is(err, contexts.ErrNoSession) {
		err = nil
	}
	return output.NewContext(context, context.Name == current, session, err, c.Now())
}

func (c *commands) contextUse() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		RunE: func(cmd *cobra.Command, given []string) error {
			config, err := c.options.Contexts.Load()
			if err != nil {
				return err
			}
			// Before anything is made where there may be nothing yet.
			if config.Find(given[0]) == nil {
				return noContext(given[0])
			}
			var chosen contexts.Context
			err = c.options.Contexts.Update(cmd.Context(), func(config *contexts.Config) error {
				found := config.Find(given[0])
				if found == nil {
					return noContext(given[0])
				}
				config.Current, chosen = found.Name, *found
				return nil
			})
			if err != nil {
				return err
			}
			return c.print(c.describeContext(chosen, chosen.Name))
		},
	}
	completeArguments(cmd, c.contextNames)
	return cmd
}

func (c *commands) contextShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context: how its cluster is reached, and its session",
		Long:  "show shows a context as it is kept on this machine; no cluster is asked. Without NAME it is the current one, or that of --context.",
		RunE: func(_ *cobra.Command, given []string) error {
			context, err := c.chosenContext(optional(given))
			if err != nil {
				return err
			}
			config, err := c.options.Contexts.Load()
			if err != nil {
				return err
			}
			return c.print(c.describeContext(context, config.Current))
		},
	}
	completeArguments(cmd, c.contextNames)
	return cmd
}

func (c *commands) contextRemove() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget a context and its session",
		Long:  "remove forgets how a cluster is reached, and the session there. The cluster, and your own key, stay as they are.",
		RunE: func(cmd *cobra.Command, given []string) error {
			config, err := c.options.Contexts.Load()
			if err != nil {
				return err
			}
			found := config.Find(given[0])
			if found == nil {
				return noContext(given[0])
			}
			document := output.ContextRemoved{Context: found.Name, Cluster: found.ClusterID(), DryRun: dryRun}
			if dryRun {
				_, err := c.options.Contexts.Session(found.Name)
				document.Session = !errors.Is(err, contexts.ErrNoSession)
				return c.print(document)
			}
			lock, err := c.options.Contexts.LockSession(cmd.Context(), found.Name)
			if err != nil {
				return err
			}
			defer lock.Release()
			// The session first: one without its context would be found by nobody.
			if document.Session, err = lock.Forget(); err != nil {
				return err
			}
			if err := c.options.Contexts.Update(cmd.Context(), func(config *contexts.Config) error {
				config.Remove(given[0])
				return nil
			}); err != nil {
				return err
			}
			if config.Current == given[0] {
				c.say("There is no current context now; `reeve context use NAME` chooses one.")
			}
			return c.print(document)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be removed, and remove nothing")
	completeArguments(cmd, c.contextNames)
	return cmd
}

func (c *commands) ca() *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the certificates of the cluster's CA",
		Long: `ca prints the certificates of the cluster's CA as PEM: what somebody needs, with the address of a curator, to log in from elsewhere. They are no secret, but
whoever gets them has to get them unchanged.`,
		Example: "  reeve ca --dir ./var/dev > ca.pem",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			certificates, err := cluster.CA(ctx)
			if err != nil {
				return err
			}
			with := contexts.Context{CA: contexts.EncodeCertificates(certificates)}
			return c.print(output.CA{Cluster: with.ClusterID(), Certificates: with.CA})
		}),
	}
}
