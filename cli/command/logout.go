package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
)

func (c *commands) logout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the session of a context",
		Long: `logout removes the session of the current context, or of the one that --context names: its key and its certificate. The way to the cluster is
kept; ` + "`reeve login --name CONTEXT`" + ` begins another session.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.onlyContext("logout"); err != nil {
				return err
			}
			context, err := c.chosenContext("")
			if err != nil {
				return err
			}
			forgotten, err := c.forget(cmd.Context(), context.Name)
			if err != nil {
				return err
			}
			return c.print(output.Logout{Context: context.Name, Forgotten: forgotten})
		},
	}
}

// forget removes the session of a context, and says whether there was one.
func (c *commands) forget(ctx context.Context, name string) (bool, error) {
	lock, err := c.options.Contexts.LockSession(ctx, name)
	if err != nil {
		return false, err
	}
	defer lock.Release()
	return lock.Forget()
}

// onlyContext refuses flags that name a cluster by something else than a context, to a command that is about contexts.
func (c *commands) onlyContext(command string) error {
	for flag, value := range map[string]string{"--dir": c.options.Dir, "--socket": c.options.Socket, "--address": c.options.Address} {
		if value != "" {
			return fault.New(fault.Usage, "reeve "+command+" is about contexts, and "+flag+" names none", "Leave it out; `reeve context list` shows the contexts.")
		}
	}
	return nil
}

// chosenContext is the context that a command about contexts means: the one of its argument, of --context, of REEVE_CONTEXT, or the current one.
func (c *commands) chosenContext(argument string) (contexts.Context, error) {
	config, err := c.options.Contexts.Load()
	if err != nil {
		return contexts.Context{}, err
	}
	for _, name := range []string{argument, c.options.Context, c.options.UsualContext, config.Current} {
		if name == "" {
			continue
		}
		found := config.Find(name)
		if found == nil {
			return contexts.Context{}, noContext(name)
		}
		return *found, nil
	}
	return contexts.Context{}, fault.New(fault.NotFound, "there is no current context", "`reeve context list` shows the contexts; `reeve login` makes one.")
}

func noContext(name string) error {
	return fault.New(fault.NotFound, "there is no context "+name, "Run `reeve context list` to see the contexts.")
}
