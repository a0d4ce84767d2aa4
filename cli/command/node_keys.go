package command

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) nodeKeys() *cobra.Command {
	return group("keys", "The keys of a node's volume", c.nodeKeysRotate())
}

func (c *commands) nodeKeysRotate() *cobra.Command {
	var request nodev1.RotateKeysRequest
	cmd := &cobra.Command{
		Use:   "rotate [NODE]",
		Short: "Put new keys in the place of the old ones",
		Long: `rotate gives the volume of a node new keys, without rewriting what is on it: the node's half (--nuk), the cluster's half (--cuk), or the data key
(--data-key), which only a volume of kind luks can change. Without any of them: both halves. Of a node that came to its cluster by a ticket the cluster holds
the other half, and gives it no new one: there it is the node's half alone, and --cuk is refused. The node runs on meanwhile.

With --recovery-recipient another recovery key opens the volume from now on. A copy of the former recovery file holds the data key all the same: who has it,
the former recovery key and the disk reads the disk, until the data key is another one.`,
		Example: `  reeve node keys rotate
  reeve node keys rotate --recovery-recipient age1… --dry-run`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if request.RecoveryRecipient != "" {
				if err := recovery.CheckRecipient(request.RecoveryRecipient, "--recovery-recipient"); err != nil {
					return err
				}
			}
			return c.withNode(cmd.Context(), optional(given), func(api nodev1.NodeServiceClient, node target.Node) error {
				return c.rotateKeys(cmd.Context(), api, node, &request)
			})
		},
	}
	cmd.Flags().BoolVar(&request.Nuk, "nuk", false, "the node's half of the key")
	cmd.Flags().BoolVar(&request.Cuk, "cuk", false, "the cluster's half of the key")
	cmd.Flags().BoolVar(&request.DataKey, "data-key", false, "the data key, of a volume of kind luks")
	cmd.Flags().StringVar(&request.RecoveryRecipient, "recovery-recipient", "", "the public half (`age1…`) of another recovery key")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, dryRunUsage)
	return cmd
}

// rotateKeys has no time limit of its own: another data key takes as long as its kind of volume needs.
func (c *commands) rotateKeys(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, request *nodev1.RotateKeysRequest) error {
	storage, err := encryptedVolume(ctx, api, node)
	if err != nil {
		return err
	}
	if !request.GetNuk() && !request.GetCuk() && !request.GetDataKey() {
		request.Nuk, request.Cuk = true, !clusterHolds(storage)
	}
	if _, err := api.RotateKeys(ctx, request); err != nil {
		return fault.FromRPC(err, "cannot rotate the keys of "+output.Called(node.ID), "Run `reeve status` to see how its volume is.")
	}
	document := output.KeysRotated{NodeID: node.ID, DryRun: request.GetDryRun(), Keys: []string{}, Recipient: request.GetRecoveryRecipient()}
	for _, key := range []struct {
		name string
		new  bool
	}{{"nuk", request.GetNuk()}, {"cuk", request.GetCuk()}, {"data-key", request.GetDataKey()}} {
		if key.new {
			document.Keys = append(document.Keys, key.name)
		}
	}
	return c.print(document)
}

// encryptedVolume returns the volume of a node. It refuses what makes no sense where that is not encrypted.
func encryptedVolume(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) (*clusterv1.StorageStatus, error) {
	self, err := askStatus(ctx, api, node)
	if err != nil {
		return nil, err
	}
	storage := self.GetStorage()
	if storage != nil && storage.GetKind() != "" && !storage.GetEncrypted() {
		return nil, notEncrypted(node.ID)
	}
	return storage, nil
}

// clusterHolds reports whether the cluster holds its half of the key of a volume, which the node then cannot change.
func clusterHolds(storage *clusterv1.StorageStatus) bool {
	return slices.ContainsFunc(storage.GetSources(), func(source *clusterv1.CukSource) bool { return source.GetName() == "cluster" })
}

func (c *commands) nodeReseal() *cobra.Command {
	var pcrs []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reseal [NODE]",
		Short: "Seal the secrets of a node anew, to the present or to a planned state of its machine",
		Long: `reseal seals the secrets of a node anew with its TPM: to the state that the machine is in now, as after ` + "`reeve node unlock`" + `, or to the one that a
planned change will bring, such as other keys of Secure Boot. A value that is given with --pcr is the one that the register will have after the next
start; if it is not the one then, the node stays locked and the recovery key opens it.`,
		Example: `  reeve node reseal
  reeve node reseal --pcr 7=65caf8dd1e0ea7a6347b635d2b379c93b9a1351edc2afc3ecda700e234eb3068 --dry-run`,
		RunE: func(cmd *cobra.Command, given []string) error {
			values, err := parsePCRs(pcrs)
			if err != nil {
				return err
			}
			return c.withNode(cmd.Context(), optional(given), func(api nodev1.NodeServiceClient, node target.Node) error {
				return c.reseal(cmd.Context(), api, node, values, dryRun)
			})
		},
	}
	cmd.Flags().StringArrayVar(&pcrs, "pcr", nil, "`NUMBER=HEX`: the SHA-256 value that a register will have; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

// registers is how many platform configuration registers a TPM has.
const registers = 24

// parsePCRs reads values of registers.
func parsePCRs(texts []string) (map[uint32][]byte, error) {
	values := make(map[uint32][]byte)
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		number, err := strconv.ParseUint(name, 10, 32)
		digest, hexErr := hex.DecodeString(value)
		if err != nil || hexErr != nil || number >= registers || len(digest) != 32 {
			return nil, fault.New(fault.Usage, fmt.Sprintf("--pcr %q is no value of a register", text),
				"Give NUMBER=HEX: a number from 0 to 23, and the 64 hexadecimal digits of a SHA-256 value, as `tpm2_pcrread sha256` prints it.")
		}
		if _, twice := values[uint32(number)]; twice {
			return nil, fault.New(fault.Usage, fmt.Sprintf("--pcr gives register %d two values", number), "Give it one.")
		}
		values[uint32(number)] = digest
	}
	return values, nil
}

func (c *commands) reseal(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, values map[uint32][]byte, dryRun bool) error {
	// A TPM may take half a minute for a command, and this is several.
	ctx, cancel := context.WithTimeout(ctx, volumeTimeout)
	defer cancel()
	response, err := api.Reseal(ctx, &nodev1.ResealRequest{Pcrs: values, DryRun: dryRun})
	if err != nil {
		return fault.FromRPC(err, "cannot seal the secrets of "+output.Called(node.ID)+" anew", "Run `reeve status` to see what seals them, and how the volume is.")
	}
	document := output.Resealed{NodeID: node.ID, DryRun: dryRun, PCRs: append([]uint32{}, response.GetPcrs()...), Expected: make(map[string]string)}
	for number, value := range values {
		document.Expected[strconv.FormatUint(uint64(number), 10)] = hex.EncodeToString(value)
	}
	return c.print(document)
}
