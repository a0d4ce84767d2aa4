package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// longestTicket and mostUses are the bounds of a ticket.
const (
	longestTicket = 30 * 24 * time.Hour
	mostUses      = 1000
)

func (c *commands) ticket() *cobra.Command {
	cmd := group("ticket", "What new machines show to register", c.ticketCreate(), c.ticketList(), c.ticketRevoke())
	cmd.Long = `A ticket is what a machine shows to register with the cluster. Its text is a secret until it is spent or over: it belongs in files that only their owner reads,
and never on a command line. On the new machine: reeve init --join FILE; then an owner looks at the node and approves it: reeve node approve NODE.`
	return cmd
}

// ticketOptions are the flags of `reeve ticket create`.
type ticketOptions struct {
	request  clusterv1.CreateTicketRequest
	lifetime time.Duration
	labels   []string
	file     string
}

func (c *commands) ticketCreate() *cobra.Command {
	var options ticketOptions
	request := &options.request
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a ticket, with which new machines register",
		Long: `create makes a ticket and prints its text: a secret, which is shown this once. Whoever has it can ask to become a node, and is one only when an owner has looked
at it and approved it; with --auto-approve at once: keep such a ticket short-lived, and protect it like a key.

With --role nodes may ask for these roles only. Without it they may ask for any; with --auto-approve for none, and never for consensus and curator. Every node gets the labels of --label, and may ask for
others besides, which are looked at when it is approved; with --auto-approve it may ask for no others.`,
		Example: `  reeve ticket create > ticket
  reeve ticket create --uses 10 --label rack=7 --note "rack 7" --output-file ticket
  reeve ticket create --auto-approve --lifetime 10m --role hostsfile | ssh root@new reeve init --join -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.lifetime < time.Second || options.lifetime > longestTicket {
				return fault.New(fault.Usage, "a ticket is good for "+options.lifetime.String()+" at no cluster", "Give --lifetime from 1s to 720h (30 days).")
			}
			if request.Uses == 0 || request.Uses > mostUses {
				return fault.New(fault.Usage, fmt.Sprintf("no ticket is for %d nodes", request.Uses), fmt.Sprintf("Give --uses from 1 to %d.", mostUses))
			}
			request.LifetimeSeconds = uint32(options.lifetime / time.Second)
			var err error
			if request.Labels, err = parseLabels(options.labels, false); err != nil {
				return err
			}
			return c.createTicket(cmd.Context(), &options)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&options.lifetime, "lifetime", 24*time.Hour, "how long it is good")
	flags.Uint32Var(&request.Uses, "uses", 1, "how many nodes may register with it")
	flags.StringSliceVar(&request.Roles, "role", nil, "a `ROLE` that nodes may ask for; may be repeated")
	flags.StringArrayVar(&options.labels, "label", nil, "a label `KEY=VALUE` that every node gets which registers with it; may be repeated")
	flags.BoolVar(&request.AutoApprove, "auto-approve", false, "approve nodes that register with it, without anybody looking at them")
	flags.StringVar(&request.Note, "note", "", "what it is for, for people")
	flags.StringVar(&options.file, "output-file", "", "write the text to this file, which is not there yet and only you may read")
	flags.BoolVar(&request.DryRun, "dry-run", false, dryRunUsage)
	complete(cmd, "role", c.offeredNames())
	return cmd
}

func (c *commands) createTicket(ctx context.Context, options *ticketOptions) error {
	return c.withTarget(ctx, func(cluster *target.Target) error {
		document, err := makeTicket(ctx, cluster.API(), &options.request)
		if err != nil {
			return err
		}
		if document.DryRun {
			return c.print(document)
		}
		how := "Whoever has this text can ask to become a node."
		if document.Ticket.AutoApprove {
			how = "Whoever has this text BECOMES A NODE, without anybody looking at it."
		}
		how += " On the new machine: `reeve init --join FILE`, or `--join -` to read it from a pipe."
		if !document.Ticket.AutoApprove {
			how += " Then here: `reeve node approve NODE`."
		}
		if options.file != "" {
			if err := keyfile.Keep(options.file, "the ticket", []byte(document.Text+"\n")); err != nil {
				return fault.New(fault.CodeOf(err), missing("", err).Reason, "Ticket "+document.Ticket.GetId()+" was made: `reeve ticket revoke "+document.Ticket.GetId()+"` takes it back.")
			}
			document.Text, document.File = "", options.file
		}
		if err := c.print(document); err != nil {
			return err
		}
		c.say(output.Clean("Ticket " + document.Ticket.GetId() + ". " + how))
		return nil
	})
}

// makeTicket makes a ticket, and the text of it.
func makeTicket(ctx context.Context, management clusterv1.ManagementServiceClient, request *clusterv1.CreateTicketRequest) (output.TicketMade, error) {
	response, err := management.CreateTicket(ctx, request)
	if err != nil {
		return output.TicketMade{}, fault.FromRPC(err, "cannot make a ticket", "`reeve plugin list` shows the roles that there are, `reeve ticket list` the tickets.")
	}
	document := output.TicketMade{Ticket: response.GetTicket(), DryRun: request.GetDryRun()}
	if document.DryRun {
		return document, nil
	}
	if document.Text, err = ticket.Encode(response.GetText()); err != nil {
		return document, fault.Wrap(fault.Failed, err, "the cluster made an invalid ticket", "`reeve ticket revoke "+document.Ticket.GetId()+"` takes it back.")
	}
	return document, nil
}

// parseLabels reads labels as people write them: KEY=VALUE, and KEY- to take one away, if that may be.
func parseLabels(texts []string, away bool) (map[string]string, error) {
	labels := make(map[string]string)
	forms := "KEY=VALUE"
	if away {
		forms += ", or KEY- to take the label away"
	}
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if !found && away && strings.HasSuffix(text, "-") {
			name, found = strings.TrimSuffix(text, "-"), true
		} else if value == "" {
			found = false
		}
		if !found || name == "" {
			return nil, fault.New(fault.Usage, fmt.Sprintf("%q is no label", text), "Give "+forms+".")
		}
		if _, twice := labels[name]; twice {
			return nil, fault.New(fault.Usage, "label "+name+" is given twice", "Give it once.")
		}
		labels[name] = value
	}
	return labels, nil
}

func (c *commands) ticketList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tickets of the cluster",
		Long:  "list shows the tickets that are not revoked, without their secrets; those that are over for a day.",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			response, err := cluster.API().ListTickets(ctx, &clusterv1.ListTicketsRequest{})
			return c.answer(output.Tickets{Tickets: response.GetTickets()}, fault.FromRPC(err, "cannot list the tickets", ""))
		}),
	}
}

func (c *commands) ticketRevoke() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "revoke TICKET",
		Short: "Take a ticket back",
		Long: `revoke takes a ticket back: nobody registers with it any more. Nodes that have, stay. TICKET is the ID of the ticket, or a beginning of it of at least four
characters that is no other's.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if strings.HasPrefix(given[0], ticket.Prefix) {
				return fault.New(fault.Usage, "this is the text of a ticket, which is secret, and not its ID", "Run `reeve ticket list` to see the IDs; whoever sees command lines has seen the text now.")
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				response, err := cluster.API().RevokeTicket(cmd.Context(), &clusterv1.RevokeTicketRequest{TicketId: given[0], DryRun: dryRun})
				return c.answer(output.TicketRevoked{Ticket: response.GetTicket(), DryRun: dryRun}, fault.FromRPC(err, "cannot revoke ticket "+given[0], "Run `reeve ticket list` to see the tickets."))
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, completed(c, func(ctx context.Context, cluster *target.Target, _ []string) ([]*clusterv1.Ticket, error) {
		response, err := cluster.API().ListTickets(ctx, &clusterv1.ListTicketsRequest{})
		return response.GetTickets(), err
	}, func(one *clusterv1.Ticket) (string, string) { return one.GetId(), one.GetNote() }))
	return cmd
}
