package command

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// auditPage is how many entries are asked for at once: as many as the cluster gives.
const auditPage = 1000

func (c *commands) audit() *cobra.Command {
	var limit uint32
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who called the cluster API, and what became of it",
		Long: `audit shows the audit log of the cluster: who called which RPC of the cluster API, with which parameters, from where and with what result, the newest
last, as in a log. Calls that were refused are in it too. To read the log is a call like any other and is kept in it, which is why it cannot be followed.`,
		Example: `  reeve audit --since 24h
  reeve audit --limit 0 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return fault.New(fault.Usage, "--since is how long ago, and not negative", "Give a duration, such as 1h.")
			}
			var from time.Time
			if since > 0 {
				from = c.Now().Add(-since)
				if !cmd.Flags().Changed("limit") {
					// A time is a limit of its own.
					limit = 0
				}
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				document, err := readAudit(cmd.Context(), cluster, limit, from)
				if err != nil {
					return err
				}
				return c.print(document)
			})
		},
	}
	cmd.Flags().Uint32Var(&limit, "limit", 100, "at most how many entries; 0: all that are kept")
	cmd.Flags().DurationVar(&since, "since", 0, "only what happened within this time before now, without a limit unless --limit is given too")
	return cmd
}

// readAudit reads the newest entries, page by page.
func readAudit(ctx context.Context, cluster *target.Target, limit uint32, from time.Time) (output.Audit, error) {
	var document output.Audit
	var before uint64
	for {
		size := uint32(auditPage)
		if limit > 0 {
			size = min(size, limit-uint32(len(document.Entries)))
		}
		page, err := cluster.API().ListAudit(ctx, &clusterv1.ListAuditRequest{Limit: size, Before: before})
		if err != nil {
			return document, fault.FromRPC(err, "cannot read the audit log", "")
		}
		document.More = page.GetMore()
		for _, entry := range page.GetEntries() {
			if entry.GetTime().AsTime().Before(from) {
				// The rest is older still.
				document.More = true
				slices.Reverse(document.Entries)
				return document, nil
			}
			document.Entries = append(document.Entries, entry)
			before = entry.GetSequence()
		}
		if !page.GetMore() || len(page.GetEntries()) == 0 || (limit > 0 && uint32(len(document.Entries)) >= limit) {
			slices.Reverse(document.Entries)
			return document, nil
		}
	}
}
