package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// completionTimeout is how long a completion may ask a node or a curator: somebody has pressed a key and waits.
const completionTimeout = 1500 * time.Millisecond

func (c *commands) completion() *cobra.Command {
	shell := func(name, how string, generate func(*cobra.Command) error) *cobra.Command {
		return &cobra.Command{
			Use:   name,
			Short: "Write the completion script for " + name,
			Long:  "completion " + name + " writes the script that completes commands, flags, nodes, roles, plugins and contexts.\n\n" + how,
			RunE:  func(cmd *cobra.Command, _ []string) error { return generate(cmd.Root()) },
		}
	}
	return group("completion", "Complete command lines in a shell",
		shell("bash", `For the present shell, where the package bash-completion is installed:

  source <(reeve completion bash)

For all: reeve completion bash > /etc/bash_completion.d/reeve`,
			func(root *cobra.Command) error { return root.GenBashCompletionV2(c.Stdout, true) }),
		shell("zsh", `For all shells, once "autoload -U compinit; compinit" is in ~/.zshrc:

  reeve completion zsh > "${fpath[1]}/_reeve"`,
			func(root *cobra.Command) error { return root.GenZshCompletion(c.Stdout) }),
		shell("fish", `For all shells:

  reeve completion fish > ~/.config/fish/completions/reeve.fish`,
			func(root *cobra.Command) error { return root.GenFishCompletion(c.Stdout, true) }),
	)
}

// completer returns what may be written next, with a description after a tab. It returns nothing where that cannot be known: a shell shows no errors.
type completer func(cmd *cobra.Command, given []string, begun string) []cobra.Completion

// asCobra is a completer as cobra calls it: what it returns is all there is, no files.
func (c completer) asCobra(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	fitting := slices.DeleteFunc(slices.Clone(c(cmd, given, begun)), func(one cobra.Completion) bool { return !strings.HasPrefix(one, begun) })
	return fitting, cobra.ShellCompDirectiveNoFileComp
}

// fixed completes to words that are known.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) []cobra.Completion { return words }
}

// complete sets how the value of a flag is completed.
func complete(cmd *cobra.Command, flag string, with completer) {
	// The flag is there, and has no other completion.
	if err := cmd.RegisterFlagCompletionFunc(flag, with.asCobra); err != nil {
		panic(err)
	}
}

// completeArguments sets how the arguments of a command are completed, one after another. What follows is nothing.
func completeArguments(cmd *cobra.Command, with ...completer) {
	cmd.ValidArgsFunction = completer(func(cmd *cobra.Command, given []string, begun string) []cobra.Completion {
		if len(given) >= len(with) {
			return nil
		}
		return with[len(given)](cmd, given, begun)
	}).asCobra
}

// quietly asks the cluster of the command line, for a moment.
func (c *commands) quietly(cmd *cobra.Command, ask func(context.Context, *target.Target) error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	// Whoever wants to know what is wrong runs the command.
	_ = c.withTarget(ctx, func(cluster *target.Target) error { return ask(ctx, cluster) })
}

// completed completes to what ask finds out from the cluster, each with a description. What has no name is left out.
func completed[T any](c *commands, ask func(context.Context, *target.Target, []string) ([]T, error), describe func(T) (name, description string)) completer {
	return func(cmd *cobra.Command, given []string, _ string) []cobra.Completion {
		var names []cobra.Completion
		c.quietly(cmd, func(ctx context.Context, cluster *target.Target) error {
			found, err := ask(ctx, cluster, given)
			for _, each := range found {
				if name, description := describe(each); name != "" {
					names = append(names, cobra.CompletionWithDesc(name, output.Clean(description)))
				}
			}
			return err
		})
		return names
	}
}

func (c *commands) nodeNames(cmd *cobra.Command, _ []string, _ string) []cobra.Completion {
	var names []cobra.Completion
	c.quietly(cmd, func(ctx context.Context, cluster *target.Target) error {
		local := ""
		if cluster.HasLocal() {
			if status, err := cluster.LocalStatus(ctx); err == nil {
				local = status.GetNodeId()
				names = append(names, cobra.CompletionWithDesc(target.Self, "the local node"))
			}
		}
		nodes, err := cluster.ListNodes(ctx)
		if err != nil && local != "" {
			names = append(names, local)
		}
		for _, node := range nodes {
			names = append(names, cobra.CompletionWithDesc(node.GetRecord().GetId(), output.State(node.GetRecord().GetState())))
		}
		return err
	})
	return names
}

func (c *commands) roleNames(cmd *cobra.Command, given []string, begun string) []cobra.Completion {
	return completed(c, func(ctx context.Context, cluster *target.Target, given []string) ([]*clusterv1.InstanceStatus, error) {
		status, err := nodeStatus(ctx, cluster, given[0])
		return status.GetNode().GetInstances(), err
	}, func(instance *clusterv1.InstanceStatus) (string, string) {
		return instance.GetRole(), output.State(instance.GetState())
	})(cmd, given, begun)
}

// offeredNames completes to the roles that the catalog offers.
func (c *commands) offeredNames() completer {
	return completed(c, func(ctx context.Context, cluster *target.Target, _ []string) (roles []*rolev1.RoleManifest, err error) {
		plugins, err := listPlugins(ctx, cluster)
		for _, plugin := range plugins {
			roles = append(roles, plugin.GetManifest().GetRoles()...)
		}
		return roles, err
	}, func(role *rolev1.RoleManifest) (string, string) { return role.GetName(), role.GetSummary() })
}

// catalog is listPlugins for completed.
func catalog(ctx context.Context, cluster *target.Target, _ []string) ([]*clusterv1.PluginRecord, error) {
	return listPlugins(ctx, cluster)
}

func (c *commands) pluginNames() completer {
	return completed(c, catalog, func(plugin *clusterv1.PluginRecord) (string, string) { return plugin.GetName(), plugin.GetVersion() })
}

// completeConditions completes to the conditions of `reeve wait`.
func (c *commands) completeConditions(cmd *cobra.Command, given []string, _ string) []cobra.Completion {
	conditions := []cobra.Completion{"healthy"}
	for _, state := range await.Memberships() {
		conditions = append(conditions, "membership="+state)
	}
	for _, state := range await.Volumes() {
		conditions = append(conditions, "volume="+state)
	}
	if len(given) == 0 {
		return conditions
	}
	for _, role := range c.roleNames(cmd, given, "") {
		name, _, _ := strings.Cut(role, "\t")
		for _, state := range await.States() {
			conditions = append(conditions, "role/"+name+"="+state)
		}
	}
	return conditions
}

func (c *commands) eachPlugin(cmd *cobra.Command, see func(*clusterv1.PluginRecord)) {
	c.quietly(cmd, func(ctx context.Context, cluster *target.Target) error {
		plugins, err := listPlugins(ctx, cluster)
		for _, plugin := range plugins {
			see(plugin)
		}
		return err
	})
}

// completeGrants completes the beginning of --grant to the roles of the catalog's plugins and the powers that they want.
func (c *commands) completeGrants(cmd *cobra.Command, _ []string, _ string) []cobra.Completion {
	var grants []cobra.Completion
	c.eachPlugin(cmd, func(plugin *clusterv1.PluginRecord) {
		// What waits may ask for something else than what runs.
		for _, role := range slices.Concat(plugin.GetManifest().GetRoles(), plugin.GetWaiting().GetManifest().GetRoles()) {
			for _, grant := range role.GetGrants() {
				if len(grant.GetParameters()) == 0 {
					grants = append(grants, role.GetName()+":"+grant.GetName())
				}
				for parameter := range grant.GetParameters() {
					grants = append(grants, role.GetName()+":"+grant.GetName()+":"+parameter+"=")
				}
			}
		}
	})
	slices.Sort(grants)
	return slices.Compact(grants)
}

// heldPowers completes to what the roles of the plugin are granted, refusedPowers to what they were refused.
func (c *commands) heldPowers(cmd *cobra.Command, given []string, _ string) []cobra.Completion {
	return c.powers(cmd, given[0], func(role output.PluginRole) *clusterv1.RoleGrants {
		return &clusterv1.RoleGrants{ConsensusUser: role.ConsensusUser, Grants: role.Grants}
	})
}

func (c *commands) refusedPowers(cmd *cobra.Command, given []string, _ string) []cobra.Completion {
	return c.powers(cmd, given[0], func(role output.PluginRole) *clusterv1.RoleGrants { return role.Withheld })
}

func (c *commands) powers(cmd *cobra.Command, plugin string, of func(output.PluginRole) *clusterv1.RoleGrants) []cobra.Completion {
	var powers []cobra.Completion
	c.eachPlugin(cmd, func(record *clusterv1.PluginRecord) {
		if record.GetName() != plugin {
			return
		}
		for _, role := range output.NewPlugin(record).Roles {
			grants := of(role)
			if grants.ConsensusUser != "" {
				powers = append(powers, cobra.CompletionWithDesc(role.Role+":"+consensusUser, output.ExplainUser(grants.ConsensusUser)))
			}
			for _, grant := range grants.Grants {
				powers = append(powers, cobra.CompletionWithDesc(role.Role+":"+grant.GetName(), output.Clean(output.Explain(grant))))
			}
		}
	})
	return powers
}

// contextNames completes to the contexts that the user has.
func (c *commands) contextNames(*cobra.Command, []string, string) []cobra.Completion {
	if c.options.Contexts == nil {
		return nil
	}
	config, err := c.options.Contexts.Load()
	if fault.CodeOf(err) != fault.OK {
		return nil
	}
	var names []cobra.Completion
	for _, context := range config.Contexts {
		names = append(names, context.Name)
	}
	return names
}
