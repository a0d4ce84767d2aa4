package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// The states of a volume on which commands decide.
const (
	volumeOpen   = clusterv1.StorageState_STORAGE_STATE_OPEN
	volumeSealed = clusterv1.StorageState_STORAGE_STATE_SEALED
	volumeLocked = clusterv1.StorageState_STORAGE_STATE_LOCKED
	volumeMaking = clusterv1.StorageState_STORAGE_STATE_MAKING
)

// volumeTimeout is how long opening or closing a volume may take: roles are given their graces, and a file system may have to be checked.
const volumeTimeout = 3 * time.Minute

func (c *commands) nodeUnlock() *cobra.Command {
	var keyFile string
	var w waiting
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "unlock",
		Short: "Open the volume of the local node with the recovery key",
		Long: `unlock opens the volume of the node on this machine with the owner's recovery key, when nothing else does: after a restart where no TPM keeps the keys, when
the TPM does not give them back, or after ` + "`reeve node seal`" + `. The recovery key does not go to the node: what the node keeps encrypted for it is decrypted
by this command, and sent back over the node's local socket.

The key is read from a file, from the standard input (-), or asked for on a terminal; never from the command line or the environment. With --dir D the
file is D/recovery.key, if it is there.

It returns when the node is Home and its roles are up. A node whose store needs the members of other nodes, as when a whole cluster was off, is not waited for.

With --dry-run the recovery key is tried on the recovery file and nothing is sent: it shows that the key would open the volume, also while that is open.`,
		Example: `  reeve node unlock --recovery-key /media/stick/recovery.key
  age -d recovery.key.age | reeve node unlock --recovery-key -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.options.Address != "" {
				return notOnTheNode("--address leads to it over the network")
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				if !cluster.HasLocal() {
					return notOnTheNode("context " + cluster.Context() + " leads to it over the network")
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
				defer cancel()
				return c.unlock(ctx, cluster, keyFile, dryRun, w.asked())
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "recovery-key", "", "the `FILE` with the recovery key; - is the standard input")
	w.waitFlag(cmd, untilReady, notAtAll)
	cmd.Flags().DurationVar(&w.timeout, "timeout", volumeTimeout, "how long opening the volume, and the wait for the roles, may take")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try the recovery key on the recovery file, and change nothing")
	return cmd
}

func notOnTheNode(why string) error {
	return fault.New(fault.Refused, "a node can only be unlocked on its own machine, where the kernel says who asks; "+why,
		"Run it there as root: `reeve node unlock --socket "+target.HostSocket+" --recovery-key FILE`.")
}

func (c *commands) unlock(ctx context.Context, cluster *target.Target, keyFile string, dryRun, wait bool) error {
	self, err := cluster.LocalStatus(ctx)
	if err != nil {
		return err
	}
	id, storage := self.GetNodeId(), self.GetStorage()
	switch {
	case storage != nil && storage.GetKind() != "" && !storage.GetEncrypted():
		return notEncrypted(id)
	case storage.GetState() == volumeMaking:
		return fault.New(fault.Refused, "the volume of "+output.Called(id)+" is being made", "`reeve status --watch` shows how far it is.")
	case storage.GetState() == volumeOpen && !dryRun:
		return c.print(output.NodeUnlocked{NodeID: id, WasOpen: true, Notes: []string{}})
	}
	node := target.Node{ID: id, Local: true}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return err
	}
	// Whether there is anything to unlock with is known before somebody looks for the key.
	file, err := recovery.Get(ctx, api, output.Called(id))
	if err != nil {
		return err
	}
	recovery.Guard()
	key, from, err := c.recoveryKey(ctx, keyFile, cluster.Directory(), file.Recipient)
	if err != nil {
		return err
	}
	content, err := key.Open(file, output.Called(id), from)
	if err != nil {
		return err
	}
	defer clear(content)
	document := output.NodeUnlocked{NodeID: id, DryRun: dryRun, Recipient: key.Recipient, Notes: []string{}}
	if dryRun {
		return c.print(document)
	}
	notes, err := sendUnlock(ctx, api, id, content)
	if err != nil {
		return err
	}
	document.Notes = append(document.Notes, notes...)
	if wait {
		if err := c.awaitUp(ctx, id, &document); err != nil {
			return err
		}
	}
	return c.print(document)
}

// sendUnlock sends what the recovery key opened to the local node until the node takes it, and returns the node's notes. There are none if the answer is lost: the node serves its socket anew
// when the volume is open.
func sendUnlock(ctx context.Context, api nodev1.NodeServiceClient, id string, content []byte) ([]string, error) {
	for {
		response, err := api.Unlock(ctx, &nodev1.UnlockRequest{Recovered: content})
		switch status.Code(err) {
		case codes.OK:
			return response.GetNotes(), nil
		case codes.Unavailable:
			// The socket is served anew: before the answer came, or before the core had heard of it.
			if now, err := untilVolume(ctx, api, id, volumeOpen, volumeLocked, volumeSealed); err != nil || now == volumeOpen {
				return nil, err
			}
		case codes.InvalidArgument:
			return nil, fault.FromRPC(err, "cannot unlock "+output.Called(id), "The recovery key is right and its recovery file is not of this volume: "+
				"see whether system/recovery.age and the volume are of the same node.")
		default:
			return nil, fault.FromRPC(err, "cannot unlock "+output.Called(id), "Run `reeve status` to see what its volume needs.")
		}
	}
}

// awaitUp waits until a node whose volume was opened is up, or needs other nodes for that.
func (c *commands) awaitUp(ctx context.Context, id string, document *output.NodeUnlocked) error {
	timeout := volumeTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	up := await.NewUp(id)
	_, err := c.await(ctx, id, timeout, []await.Source{c.nodeSource(id)}, up)
	if others := up.Others(); err != nil && others != "" {
		document.Notes = append(document.Notes, "The node waits for others: "+others+".")
		return nil
	}
	if stopped := (*fault.Error)(nil); errors.As(err, &stopped) {
		stopped.What = "the volume of " + output.Called(id) + " is open, but " + stopped.What
		return stopped
	}
	document.Up = err == nil
	return err
}

// askAgain is how long a call is left that the API did not take: the one that is to take it may have to be served first.
const askAgain = 100 * time.Millisecond

// untilVolume waits until the volume of the local node is in one of some states, while its API is served anew, and returns in which.
func untilVolume(ctx context.Context, api nodev1.NodeServiceClient, id string, states ...clusterv1.StorageState) (clusterv1.StorageState, error) {
	what := "cannot watch the volume of " + output.Called(id)
	for {
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
		stream, err := api.WatchStatus(ctx, &nodev1.WatchStatusRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var response *nodev1.WatchStatusResponse
			response, err = stream.Recv()
			if now := response.GetStatus().GetStorage().GetState(); err == nil && slices.Contains(states, now) {
				return now, nil
			}
		}
		if ctx.Err() != nil {
			return 0, fault.Wrap(fault.Failed, ctx.Err(), what, "Run `reeve status` to see how it is.")
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.Canceled, codes.Unknown:
		default:
			return 0, fault.FromRPC(err, what, "Run `reeve status` to see how it is.")
		}
	}
}

func notEncrypted(id string) error {
	return fault.New(fault.Refused, "the volume of "+output.Called(id)+" is NOT ENCRYPTED: there is nothing to lock or unlock",
		"To have one that is, set up a node with `reeve init --volume fscrypt` or `--volume luks:DEVICE`.")
}

// recoveryKey reads the recovery key from where the command line says, or from the dev directory, or asks for it. from is where it was, for people.
func (c *commands) recoveryKey(ctx context.Context, file, directory, recipient string) (key *recovery.Key, from string, err error) {
	if file == "" && directory != "" {
		beside := filepath.Join(directory, dev.RecoveryKey)
		if _, err := os.Stat(beside); !errors.Is(err, fs.ErrNotExist) {
			file = beside
		}
	}
	switch {
	case file == "-":
		key, err = c.readKey(ctx)
		return key, "the standard input", err
	case file != "":
		key, err = recovery.ReadFile(file)
		return key, file, err
	case !c.Interactive:
		return nil, "", fault.New(fault.Usage, "the recovery key is not given",
			"Give the file of the one whose public half is "+recipient+" with --recovery-key, or - for the standard input.")
	}
	_, _ = c.Stderr.Write([]byte("The recovery key of " + output.Clean(recipient) + " (AGE-SECRET-KEY-1…, not shown): "))
	key, err = c.readKey(ctx)
	c.say("")
	return key, "the answer", err
}

// readKey reads the recovery key from the standard input, of a terminal without showing it.
func (c *commands) readKey(ctx context.Context) (*recovery.Key, error) {
	restore := func() {}
	terminal, is := c.Stdin.(*os.File)
	is = is && term.IsTerminal(int(terminal.Fd()))
	if is {
		if state, err := term.GetState(int(terminal.Fd())); err == nil {
			restore = func() { _ = term.Restore(int(terminal.Fd()), state) }
		}
	}
	return interruptible(ctx, func() (*recovery.Key, error) {
		if !is {
			return recovery.Read(c.Stdin, "the standard input")
		}
		text, err := term.ReadPassword(int(terminal.Fd()))
		defer clear(text)
		if err != nil {
			return nil, fault.Wrap(fault.Failed, err, "cannot read the recovery key", "Give its file with --recovery-key.")
		}
		return recovery.Parse(text, "the answer")
	}, func() error {
		restore()
		return fault.New(fault.Failed, "interrupted before the recovery key was given: nothing was changed", "")
	})
}
