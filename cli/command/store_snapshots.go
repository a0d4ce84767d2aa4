package command

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/snapshotfile"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

func (c *commands) storeSnapshotList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scheduled snapshots",
		Long: `list shows the snapshots that the cluster has taken by its schedule (` + "`reeve policy set snapshots=…`" + `): which node has each one, when it was taken, and of which revision.
Every one that is listed was restored into an etcd that was thrown away, and is what the store was. It shows, too, what went wrong on a node that was to take one.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			listed, err := listSnapshots(ctx, cluster)
			if err != nil {
				return err
			}
			return c.print(output.NewSnapshots(listed))
		}),
	}
}

func listSnapshots(ctx context.Context, cluster *target.Target) (*clusterv1.ListSnapshotsResponse, error) {
	listed, err := cluster.API().ListSnapshots(ctx, &clusterv1.ListSnapshotsRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot list the scheduled snapshots", "")
	}
	return listed, nil
}

func (c *commands) storeSnapshotGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME FILE",
		Short: "Fetch a scheduled snapshot from its node",
		Long: `get writes a snapshot that the cluster has taken by its schedule to FILE, and checks it on the way. NAME is its name in ` + "`reeve store snapshot list`" + `. The node that has it must run,
and this machine must reach its curator. FILE gets its name when all of it is there; a file is never overwritten. A viewer cannot do this.`,
		Example: `  reeve store snapshot get 20261128T180000Z-7 /backup/reeve.snapshot`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			return c.getSnapshot(ctx, cluster, given[0], given[1])
		}),
	}
}

func (c *commands) getSnapshot(ctx context.Context, cluster *target.Target, name, path string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file, err := snapshotfile.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	listed, err := listSnapshots(ctx, cluster)
	if err != nil {
		return err
	}
	node := ""
	for _, kept := range listed.GetNodes() {
		if slices.ContainsFunc(kept.GetSnapshots(), func(one *clusterv1.StoredSnapshot) bool { return one.GetName() == name }) {
			node = kept.GetNodeId()
		}
	}
	if node == "" {
		return fault.New(fault.NotFound, "there is no scheduled snapshot "+name, "`reeve store snapshot list` shows those that there are.")
	}
	authorities, err := cluster.CA(ctx)
	if err != nil {
		return err
	}
	api, err := cluster.CuratorOf(ctx, node)
	if err != nil {
		return err
	}
	stream, err := api.GetSnapshot(ctx, &clusterv1.GetSnapshotRequest{Name: name})
	if err != nil {
		return getFault(err, node)
	}
	header, err := file.Fill(&parts{next: func() ([]byte, error) {
		part, err := stream.Recv()
		return part.GetData(), err
	}}, func(header *snapshot.Header) error {
		if warning := warnOfCA(header, authorities); warning != "" {
			c.say(warning)
		}
		return checkSealed(header, false)
	}, c.snapshotProgress())
	if err != nil {
		return getFault(err, node)
	}
	if err := file.Finish(); err != nil {
		return err
	}
	return c.print(output.NewSnapshot(path, header))
}

// warnOfCA says that a snapshot is signed by another CA than the cluster's; empty: it is not. It is no reason to refuse it: the curator that has it has proved itself by the CA of now.
func warnOfCA(header *snapshot.Header, authorities []*x509.Certificate) string {
	if slices.ContainsFunc(authorities, header.Authority.Equal) {
		return ""
	}
	return fmt.Sprintf("Warning: the snapshot is signed by another CA than the cluster has now, whose key is %s. It was taken before the CA was rotated, or is of another cluster.",
		snapshot.ShowKey(header.Authority))
}

func getFault(err error, node string) error {
	return fault.FromRPC(err, "cannot fetch the snapshot from node "+node, "Nothing was kept. `reeve store snapshot list` shows where the others are.")
}
