package command

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// approval is how the owner approves on the command line.
type approval struct {
	grants, without []string
	yes, privileged bool
	// granted and withheld are grants and without, read.
	granted, withheld []power
}

func (a *approval) flags(c *commands, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.grants, "grant", nil, "ROLE:NAME[:KEY=VALUE]: grant a power, and set a parameter of it; may be repeated")
	cmd.Flags().StringArrayVar(&a.without, "without", nil, "ROLE:NAME[:KEY=VALUE]: refuse a power that is asked for; may be repeated")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "answer the question whether to approve with yes")
	cmd.Flags().BoolVar(&a.privileged, "privileged", false, "approve that a role is privileged, if it asks for that: it has no sandbox then")
	complete(cmd, "grant", c.completeGrants)
	complete(cmd, "without", c.completeGrants)
}

func (a *approval) parse() (err error) {
	if a.granted, err = parsePowers("--grant ", a.grants); err != nil {
		return err
	}
	a.withheld, err = parsePowers("--without ", a.without)
	return err
}

// chosen says whether the command line says what is granted and what is not.
func (a *approval) chosen() bool { return len(a.grants)+len(a.without) > 0 }

// question is what the owner is asked before a version runs.
type question struct {
	approval
	// record is nil for a plugin that is new.
	record  *clusterv1.PluginRecord
	version *clusterv1.PluginVersion
}

func newQuestion(record *clusterv1.PluginRecord, version *clusterv1.PluginVersion, options approval) question {
	return question{approval: options, record: record, version: version}
}

// decide returns whether the owner approves a version, and what its roles are then granted. It shows what is asked for, and asks where somebody can answer.
func (c *commands) decide(ctx context.Context, q question, show, dryRun bool) (bool, []*clusterv1.RoleGrants, error) {
	grants, err := grantsFor(q.version.GetManifest(), q.record, q.granted, q.withheld)
	if err != nil {
		return false, nil, err
	}
	if show {
		c.showQuestion(q, grants)
	}
	role := newlyPrivileged(q.record.GetGrants(), grants)
	byWord := role != "" && !q.privileged
	asks := show && c.Interactive && !dryRun
	switch {
	case byWord && asks:
		answer, err := c.ask(ctx, fmt.Sprintf("Role %s would have no sandbox. Type the word privileged to approve that:", output.Clean(role)))
		return answer == remit.Privileged, grants, err
	case byWord && !dryRun:
		return false, nil, fault.New(fault.Refused, fmt.Sprintf("role %s of plugin %s asks to run without a sandbox (privileged), which you have to allow by that word",
			output.Clean(role), output.Clean(q.version.GetManifest().GetName())),
			"Give --privileged if it may run without a sandbox, or --without "+output.Clean(role)+":"+remit.Privileged+".")
	case show && !c.Interactive && !q.yes && !dryRun:
		return false, nil, fault.New(fault.Refused, "version "+output.Clean(q.version.GetVersion())+" of plugin "+output.Clean(q.version.GetManifest().GetName())+
			" was not approved: there is no terminal to ask on", "Give --yes to approve what is shown above, or --dry-run to change nothing.")
	case asks && !q.yes:
		yes, err := c.agrees(ctx, "Approve it?")
		return yes, grants, err
	}
	return true, grants, nil
}

// showQuestion says what a version asks for that was not decided on.
func (c *commands) showQuestion(q question, grants []*clusterv1.RoleGrants) {
	manifest := q.version.GetManifest()
	runs := "nothing of it runs yet"
	if version := q.record.GetVersion(); version != "" {
		runs = "version " + version + " runs"
	}
	c.say(output.Clean(fmt.Sprintf("Plugin %s %s; %s.", manifest.GetName(), q.version.GetVersion(), runs)))
	for _, platform := range slices.Sorted(maps.Keys(q.version.GetDigests())) {
		c.say(output.Clean("  " + platform + " " + q.version.GetDigests()[platform]))
	}
	beyond := remit.Beyond(manifest, q.record.GetDecided(), q.record.GetGrants())
	if len(beyond) == 0 {
		c.say("It asks for nothing that was not decided on.")
	}
	c.sayPowers(beyond, "asks to")
	if !q.chosen() {
		return
	}
	c.say("With --grant and --without:")
	c.sayPowers(grants, "would be granted to")
}

func (c *commands) sayPowers(of []*clusterv1.RoleGrants, verb string) {
	for _, grants := range of {
		c.say("Role " + output.Clean(grants.GetRole()) + " " + verb + ":")
		lines := output.ExplainGrants(grants)
		if len(lines) == 0 {
			lines = []string{"nothing"}
		}
		for _, line := range lines {
			c.say("  " + line)
		}
	}
}

// newlyPrivileged is the first role that would have no sandbox, and has one now; empty: there is none.
func newlyPrivileged(before, after []*clusterv1.RoleGrants) string {
	for _, grants := range after {
		if isPrivileged(grants.GetGrants()) && !isPrivileged(remit.ForRole(before, grants.GetRole()).GetGrants()) {
			return grants.GetRole()
		}
	}
	return ""
}

func isPrivileged(grants []*rolev1.Grant) bool {
	return slices.ContainsFunc(grants, func(grant *rolev1.Grant) bool { return grant.GetName() == remit.Privileged })
}

// agrees asks a question to which the answer is yes or no; no, if nothing is answered.
func (c *commands) agrees(ctx context.Context, question string) (bool, error) {
	answer, err := c.ask(ctx, question+" [y/N]")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// confirm asks whether to go on. next is what to do if the answer is not yes.
func (c *commands) confirm(ctx context.Context, question, next string) error {
	agreed, err := c.agrees(ctx, question)
	if err == nil && !agreed {
		err = fault.New(fault.Refused, "the answer was not yes: nothing was changed", next)
	}
	return err
}

// ask asks somebody at the terminal.
func (c *commands) ask(ctx context.Context, question string) (string, error) {
	_, _ = fmt.Fprint(c.Stderr, question+" ")
	return interruptible(ctx, func() (string, error) {
		line, _ := bufio.NewReader(c.Stdin).ReadString('\n')
		return strings.TrimSpace(line), nil
	}, func() error {
		c.say("")
		return fault.New(fault.Failed, "interrupted before the question was answered: nothing was changed", "")
	})
}

// interruptible reads an answer, or returns the error of interrupted when ctx ends first. The read then stays until the process ends: nothing wakes one who waits for a terminal.
func interruptible[T any](ctx context.Context, read func() (T, error), interrupted func() error) (T, error) {
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, 1)
	go func() {
		answer, err := read()
		results <- result{answer, err}
	}()
	select {
	case got := <-results:
		return got.answer, got.err
	case <-ctx.Done():
		var none T
		return none, interrupted()
	}
}
