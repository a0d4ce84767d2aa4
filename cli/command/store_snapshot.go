package command

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/snapshotfile"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// progressEvery is how often it is said how far a snapshot is.
const progressEvery = 5 * time.Second

func (c *commands) storeSnapshot() *cobra.Command {
	var unencrypted bool
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Take a snapshot of the store",
		Long: `snapshot writes what the consensus store holds to FILE: everything that was acknowledged before, at one revision. The file is compressed, signed by the cluster's CA, and sealed
to the owner's recovery key that the cluster's policy names (` + "`reeve policy set recovery-recipient=age1…`" + `): an operator can take it, and only the holder of that key can open it. A viewer
cannot take one. With --unencrypted, which is for the owner, it is not sealed: whoever has the file then has every secret of the cluster, the key of its CA among them.

The node's member of the store copies it to its own disk first, so the store does not wait for the network. FILE gets its name when all of it is there; a file is never overwritten. When the command
ends early, nothing stays of it, and it can be run again.`,
		Example: `  reeve store snapshot /backup/reeve-$(date +%F).snapshot
  reeve store snapshot inspect /backup/reeve-2026-11-28.snapshot`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			return c.takeSnapshot(ctx, cluster, given[0], unencrypted)
		}),
	}
	cmd.Flags().BoolVar(&unencrypted, "unencrypted", false, "do not seal it to the owner's recovery key")
	cmd.AddCommand(c.storeSnapshotInspect(), c.storeSnapshotList(), c.storeSnapshotGet())
	return cmd
}

func (c *commands) takeSnapshot(ctx context.Context, cluster *target.Target, path string, unencrypted bool) error {
	// Ended with the command, so that the cluster does not wait for somebody who does not read.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file, err := snapshotfile.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	authorities, err := cluster.CA(ctx)
	if err != nil {
		return err
	}
	stream, err := streamSnapshot(ctx, cluster.API(), unencrypted)
	if err != nil {
		return snapshotFault(err)
	}
	c.say("The member of the store on the curator's node copies its database to its own disk first.")
	header, err := file.Fill(stream, func(header *snapshot.Header) error {
		if err := checkSnapshot(header, authorities, unencrypted); err != nil {
			return err
		}
		c.say(fmt.Sprintf("The store of node %s, at revision %d: %s.", output.Clean(header.Manifest.NodeID), header.Manifest.Revision, output.Size(header.Size())))
		return nil
	}, c.snapshotProgress())
	if err != nil {
		return snapshotFault(err)
	}
	if err := file.Finish(); err != nil {
		return err
	}
	return c.print(output.NewSnapshot(path, header))
}

// checkSnapshot says whether a snapshot is the cluster's, and sealed if it is to be.
func checkSnapshot(header *snapshot.Header, authorities []*x509.Certificate, unencrypted bool) error {
	if !slices.ContainsFunc(authorities, header.Authority.Equal) {
		return fault.New(fault.Refused, "the snapshot is signed by another CA than the cluster's", "Nothing was kept. Run `reeve ca`, and the command again: the CA may just have been rotated.")
	}
	return checkSealed(header, unencrypted)
}

func checkSealed(header *snapshot.Header, unencrypted bool) error {
	if (header.Manifest.Recipient == "") != unencrypted {
		return fault.New(fault.Refused, "the snapshot is not sealed as it was asked for", "Nothing was kept. Run the command again.")
	}
	return nil
}

// snapshotProgress says how far a snapshot is, from time to time.
func (c *commands) snapshotProgress() func(done, all int64) {
	said := c.Now()
	return func(done, all int64) {
		if now := c.Now(); now.Sub(said) >= progressEvery {
			said = now
			c.say(fmt.Sprintf("  %s of %s, %d %%", output.Size(done), output.Size(all), done*100/all))
		}
	}
}

func snapshotFault(err error) error {
	return fault.FromRPC(err, "cannot take a snapshot of the store", "Nothing was kept. `reeve store status` shows how the store is.")
}

// parts is a stream of the bytes of a file.
type parts struct {
	next func() ([]byte, error)
	left []byte
}

// Read implements io.Reader.
func (p *parts) Read(into []byte) (int, error) {
	for len(p.left) == 0 {
		var err error
		if p.left, err = p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(into, p.left)
	p.left = p.left[n:]
	return n, nil
}

func streamSnapshot(ctx context.Context, api clusterv1.ManagementServiceClient, unencrypted bool) (*parts, error) {
	if unencrypted {
		stream, err := api.StreamUnencryptedSnapshot(ctx, &clusterv1.StreamUnencryptedSnapshotRequest{})
		return &parts{next: func() ([]byte, error) {
			part, err := stream.Recv()
			return part.GetData(), err
		}}, err
	}
	stream, err := api.StreamSnapshot(ctx, &clusterv1.StreamSnapshotRequest{})
	return &parts{next: func() ([]byte, error) {
		part, err := stream.Recv()
		return part.GetData(), err
	}}, err
}

func (c *commands) storeSnapshotInspect() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show and check a snapshot",
		Long: `inspect shows what a snapshot holds, and checks that nothing of it is missing or changed since the cluster's CA signed it. It needs no cluster. With the recovery key it opens the
snapshot, too, and checks the database in it.

Whose CA has signed it is told by the contexts (` + "`reeve context list`" + `) or by --ca FILE: a file that no known CA has signed may be anybody's.`,
		Example: `  reeve store snapshot inspect reeve-2026-11-28.snapshot
  reeve store snapshot inspect reeve-2026-11-28.snapshot --recovery-key /media/stick/recovery.key`,
		RunE: func(cmd *cobra.Command, given []string) error {
			var key *recovery.Key
			var from string
			if keyFile != "" {
				recovery.Guard()
				var err error
				if key, from, err = c.recoveryKey(cmd.Context(), keyFile, "", ""); err != nil {
					return err
				}
			}
			knownAs := ""
			header, opened, err := snapshotfile.Inspect(cmd.Context(), given[0], key, from, func(header *snapshot.Header) (err error) {
				knownAs, err = c.knownAuthority(header)
				return err
			})
			if err != nil {
				return err
			}
			document := output.NewSnapshot(given[0], header)
			document.KnownAs, document.Checked = knownAs, "file"
			if opened {
				document.Checked = "database"
			}
			return c.print(document)
		},
	}
	cmd.Flags().StringVar(&keyFile, "recovery-key", "", "the `FILE` with the recovery key, to open the snapshot; - is the standard input")
	return cmd
}

// knownAuthority returns by what the CA that signed a snapshot is known: a context, or the file that was given; empty: it is not. A file that was given must have it.
func (c *commands) knownAuthority(header *snapshot.Header) (string, error) {
	if file := c.options.CAFile; file != "" {
		certificates, err := target.ReadCA(file)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(certificates, header.Authority.Equal) {
			return "", fault.New(fault.Refused, fmt.Sprintf("the snapshot is signed by another CA than that of %s: it has the key %s", file, snapshot.ShowKey(header.Authority)),
				"Do not use it, unless that is the cluster's former CA.")
		}
		return file, nil
	}
	if c.options.Contexts == nil {
		return "", nil
	}
	config, err := c.options.Contexts.Load()
	if err != nil {
		return "", err
	}
	for _, context := range config.Contexts {
		certificates, err := context.CACertificates()
		if err == nil && slices.ContainsFunc(certificates, header.Authority.Equal) {
			return "context " + context.Name, nil
		}
	}
	return "", nil
}
