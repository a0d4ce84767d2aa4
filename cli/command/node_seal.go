package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) nodeSeal() *cobra.Command {
	var timeout time.Duration
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "seal [NODE]",
		Short: "Stop the roles of a node, forget its keys and close its volume",
		Long: `seal stops the roles of a node, forgets the keys of its volume, closes the volume, and proves that it is closed: what is on it is from then on as safe as
while the machine is off. reeved goes on running and waits for ` + "`reeve node unlock`" + `, also when it is started anew. By itself a node opens its volume again only
after the machine was started again, and only where its TPM keeps the keys.`,
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			return c.seal(ctx, api, node, sealOptions{yes: yes, dryRun: dryRun, timeout: timeout})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "answer the question whether to seal the node with yes")
	cmd.Flags().DurationVar(&timeout, "timeout", volumeTimeout, "how long stopping the roles and closing the volume may take, and the longer where a role takes longer than 10s by its manifest")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

type sealOptions struct {
	yes, dryRun bool
	timeout     time.Duration
}

func (c *commands) seal(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, options sealOptions) error {
	self, err := askStatus(ctx, api, node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, options.timeout+await.LongStops(self.GetNode().GetInstances()))
	defer cancel()
	document := output.NodeSealed{NodeID: node.ID, DryRun: options.dryRun, Roles: runningRoles(self)}
	storage := self.GetStorage()
	switch {
	case storage != nil && !storage.GetEncrypted():
		return notEncrypted(node.ID)
	case storage.GetState() == volumeSealed:
		return c.print(document)
	case storage != nil && storage.GetState() != volumeOpen:
		return fault.New(fault.Refused, "the volume of "+output.Called(node.ID)+" is "+output.State(storage.GetState())+", and only one that is open can be sealed",
			"Run `reeve status` to see what it waits for. To keep it closed, stop reeved.")
	case storage != nil && !storage.GetRecoverable() && !hasSource(storage, "tpm"):
		return fault.New(fault.Refused, "nothing would open the volume of "+output.Called(node.ID)+" again: it has no recovery key",
			"Make one with `reeve recovery-key new FILE`, and give it to the node: `reeve node keys rotate --recovery-recipient age1…`.")
	}
	if c.Interactive && !options.yes && !options.dryRun {
		c.say("The roles of " + output.Called(node.ID) + " (" + output.Clean(strings.Join(document.Roles, ", ")) + ") would be stopped and its volume closed. " + again(storage))
		if yes, err := c.agrees(ctx, "Seal it?"); err != nil || !yes {
			if err == nil {
				c.say("Nothing was changed.")
			}
			return err
		}
	}
	for {
		_, err = api.Seal(ctx, &nodev1.SealRequest{DryRun: options.dryRun})
		if status.Code(err) != codes.Unavailable || !node.Local {
			break
		}
		// The socket is served anew: before the answer came, or before the core had heard of it.
		now, err := untilVolume(ctx, api, node.ID, volumeSealed, volumeOpen)
		if err != nil {
			return err
		}
		if now == volumeSealed {
			return c.print(document)
		}
	}
	return c.answer(document, fault.FromRPC(err, "cannot seal "+output.Called(node.ID), "Run `reeve status` to see how it is."))
}

// again says what opens a volume after it was sealed.
func again(storage *clusterv1.StorageStatus) string {
	switch {
	case storage.GetRecoverable() && hasSource(storage, "tpm"):
		return "The recovery key opens it again (`reeve node unlock`), and so may a restart of the machine."
	case storage.GetRecoverable():
		return "Only the recovery key opens it again (`reeve node unlock`)."
	case hasSource(storage, "tpm"):
		return "Only a restart of the machine opens it again: there is no recovery key."
	default:
		return ""
	}
}

func hasSource(storage *clusterv1.StorageStatus, name string) bool {
	return slices.ContainsFunc(storage.GetSources(), func(source *clusterv1.CukSource) bool {
		return source.GetName() == name && source.GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF &&
			source.GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_FAILED
	})
}

// runningRoles are those of which a process runs.
func runningRoles(self *nodev1.Status) []string {
	roles := []string{}
	for _, instance := range self.GetNode().GetInstances() {
		if instance.GetPid() != 0 {
			roles = append(roles, instance.GetRole())
		}
	}
	return roles
}
