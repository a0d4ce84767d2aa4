package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/node"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/restore"
	"github.com/reeveproject/reeve/core/unseal"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// restoring is one run of the command.
type restoring struct {
	place             place
	again             bool
	file, key, answer string
	ca                *restore.CA // nil: nobody said whose snapshot it is to be

	found *params.Found
	in    io.Reader
	out   io.Writer
	now   func() time.Time
}

func restoreCommand() *cobra.Command {
	r, ca := &restoring{now: time.Now}, ""
	cmd := &cobra.Command{
		Use:   "restore --snapshot FILE [--ca FILE] [--recovery-key FILE] [--parameters FILE]",
		Short: "Make this machine the first node of a cluster that a snapshot holds",
		Long: "restore brings a cluster back whose machines are lost. On an empty machine it makes a cluster of one node out of a snapshot of the store (`reeve store snapshot`): with the same ID,\n" +
			"CA, nodes, operators and data of the roles. What was written after the snapshot is lost. This machine's parameters are those of a first node: their section bootstrap gives its roles,\n" +
			"its labels and the owner's key, which must be the cluster's.\n\n" +
			"Anybody can make a file that looks like a cluster's snapshot, and would be the owner of what comes of it. With --ca FILE, which `reeve ca` has written, only a file is taken that the cluster's CA has signed.\n\n" +
			"All of the snapshot is checked before anything is made. Then restore says what is lost, and asks for the ID of the cluster. It ends when the node is Home; then start reeved as always.\n" +
			"Former nodes come back by themselves, without a ticket, when they reach this machine. A command that was stopped goes on when it is run again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.in, r.out = cmd.InOrStdin(), cmd.OutOrStdout()
			var err error
			if r.found, err = r.place.find(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("ca") {
				if r.ca, err = restore.ReadCA(ca); err != nil {
					return err
				}
			}
			return r.run(cmd.Context())
		},
	}
	r.place.flags(cmd)
	cmd.Flags().StringVar(&r.file, "snapshot", "", "the `FILE` that `reeve store snapshot` wrote")
	cmd.Flags().StringVar(&ca, "ca", "", "the `FILE` with the certificates of the cluster's CA (`reeve ca`), which must have signed the snapshot")
	cmd.Flags().StringVar(&r.key, "recovery-key", "", "the `FILE` with the owner's recovery key, to open the snapshot; - is the standard input")
	cmd.Flags().StringVar(&r.answer, "cluster-id", "", "the `ID` of the cluster, in place of typing it")
	cmd.Flags().BoolVar(&r.again, "again", false, "let the parameters make a node once more, which gives up the one that they made before")
	_ = cmd.MarkFlagRequired("snapshot")
	return cmd
}

func (r *restoring) run(ctx context.Context) error {
	parameters := r.found.Parameters
	switch {
	case parameters.GetRegister() != nil:
		return fmt.Errorf("cannot restore: the parameters in %s register the machine with a cluster that runs (section register): give it the parameters of a first node (section bootstrap)", r.found.File)
	case parameters.GetBootstrap() == nil:
		return fmt.Errorf("cannot restore: the parameters in %s have no section bootstrap, which gives the roles and the owner's key of the restored cluster's first node", r.found.File)
	}
	if err := withoutDumps(); err != nil {
		return fmt.Errorf("core dumps cannot be turned off (RLIMIT_CORE), and one would hold the recovery key: %w", err)
	}
	key, err := r.readKey()
	if err != nil {
		return err
	}
	opened, err := restore.Open(ctx, r.file, key, r.check, r.progress("Checking the snapshot"))
	if err != nil {
		return err
	}
	if err := r.confirm(opened.Header); err != nil {
		return err
	}
	return r.make(ctx, opened)
}

func (r *restoring) readKey() (*restore.Key, error) {
	switch r.key {
	case "":
		return nil, nil
	case "-":
		if r.answer == "" {
			return nil, errors.New("cannot restore: with the recovery key on the standard input, nobody can type the cluster's ID there: give it with --cluster-id ID")
		}
		return restore.ReadKey(r.in, "the standard input")
	}
	return restore.ReadKeyFile(r.key)
}

// of is the snapshot, as the node knows it.
func of(header *snapshot.Header) unseal.Restore {
	return unseal.Restore{ClusterID: header.Manifest.ClusterID, Snapshot: header.Manifest.PayloadSHA256, Taken: header.Manifest.Time}
}

// check looks at the machine before all of the snapshot is read.
func (r *restoring) check(header *snapshot.Header) error {
	if r.ca != nil {
		if err := r.ca.Check(header); err != nil {
			return err
		}
	}
	if err := membership.CheckClock(r.now()); err != nil {
		return err
	}
	return node.CheckRestore(r.found.Parameters, r.found.File, of(header), r.again)
}

// confirm says what is in the snapshot and what is lost, and has somebody say that it is meant.
func (r *restoring) confirm(header *snapshot.Header) error {
	m := header.Manifest
	r.say("The snapshot %s", r.file)
	r.say("  cluster    %s", m.ClusterID)
	r.say("  taken      %s by node %s, %s", m.Time.UTC().Format(time.RFC3339), m.NodeID, r.age(m.Time))
	r.say("  revision   %d", m.Revision)
	r.say("  signed by  the CA with the key %s", snapshot.ShowKey(header.Authority))
	if r.ca == nil {
		r.say("Nobody has checked who made this file. If you do not know that yourself, stop here, and name the cluster's CA with --ca FILE.")
	}
	r.say("What was written to the store after that, at a later revision than %d, is lost. Nodes and operators that came later are unknown to the restored cluster, and those that were removed later are in it.", m.Revision)
	r.say("Restore a cluster only when no majority of its store is left: as long as one is alive, its nodes refuse the restored one.")
	answer := r.answer
	if answer == "" {
		_, _ = fmt.Fprint(r.out, "Type the ID of the cluster to restore it: ")
		line, err := bufio.NewReader(r.in).ReadString('\n')
		if err != nil && line == "" {
			return errors.New("nothing was made: nobody typed the ID of the cluster; give it with --cluster-id ID where nobody can")
		}
		answer = strings.TrimSpace(line)
	}
	if answer != m.ClusterID {
		return fmt.Errorf("nothing was made: %q is not the ID of the cluster in the snapshot, which is %s", answer, m.ClusterID)
	}
	return nil
}

// age is how long ago a time is, for people.
func (r *restoring) age(at time.Time) string {
	if age := r.now().Sub(at).Round(time.Second); age >= 0 {
		return age.String() + " ago"
	}
	return at.Sub(r.now()).Round(time.Second).String() + " after what this machine's clock says: look at the clocks of both"
}

// make makes the node, and ends it when it is Home.
func (r *restoring) make(ctx context.Context, opened *restore.Snapshot) error {
	parameters := r.found.Parameters
	log, done, err := logger(parameters.GetLog())
	if err != nil {
		return err
	}
	tell(log, r.found)
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var last membership.Status
	said := ""
	config := node.Config{
		Log: log, Parameters: parameters, ParametersFile: r.found.File, Again: r.again, Version: version,
		Restore: &node.Restore{
			Snapshot: of(opened.Header),
			Send: func(ctx context.Context, to consensusv1.ConsensusServiceClient) error {
				return opened.Send(ctx, to, r.progress("Giving the snapshot to the consensus role"))
			},
			Changed: func(status membership.Status) {
				if text := membership.Name(status.State) + ": " + status.Reason; text != said {
					said = text
					r.say("%s", text)
				}
				if last.State == membership.Home {
					return // what comes while the node ends
				}
				if last = status; status.State == membership.Home {
					end(nil)
				}
			},
			Failed: func(problem string) { end(errors.New(problem)) },
		},
	}
	err = errors.Join(node.Run(running, config), done())
	switch cause := context.Cause(running); {
	case err != nil:
		return err
	case last.State == membership.Home:
	case ctx.Err() != nil:
		return errors.New("the command was stopped before the node was Home: run it again, which goes on")
	default:
		return fmt.Errorf("cannot restore cluster %s on node %s: %w", opened.Manifest.ClusterID, last.NodeID, cause)
	}
	r.say("Cluster %s is restored, and node %s is its only node that runs. Now:", last.ClusterID, last.NodeID)
	r.say("  1. Start reeved on this machine as always. An encrypted volume is opened by its TPM, or by `reeve node unlock`.")
	r.say("  2. Sign in (`reeve login`) at the address of this machine, and look at `reeve node list`.")
	r.say("  3. Start the former nodes that are left. They come back by themselves if they know this machine's address: it has that of a former curator, or network.curators in their parameters names it.")
	r.say("  4. Delete the nodes that are gone for good: `reeve node delete NODE`.")
	return nil
}

func (r *restoring) say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", arguments...)
}

// progressEvery is how often it is said how far something is.
const progressEvery = 5 * time.Second

// progress says how far something is, from time to time.
func (r *restoring) progress(what string) restore.Progress {
	said := r.now()
	return func(done, all int64) {
		if now := r.now(); now.Sub(said) >= progressEvery {
			said = now
			r.say("%s: %d %%", what, done*100/all)
		}
	}
}
