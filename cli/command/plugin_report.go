package command

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/attest"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) pluginReport() *cobra.Command {
	cmd := group("report", "Signed reports of the conformance suite", c.reportShow(), c.reportVerify(), c.reportAdd(), c.reportGet())
	cmd.Long = `A report says what the conformance suite found of one executable, which it names by its digest: reeve plugin test --report writes it, signed by a key. It is an
in-toto statement of the predicate for test results in a DSSE envelope, which other programs read too.`
	return cmd
}

// readReport reads the file of a report. The error says what is wrong with it.
func readReport(file string) ([]byte, *attest.Signed, error) {
	const next = "A report is what `reeve plugin test --report` writes."
	text, err := readBounded(file)
	if err != nil {
		return nil, nil, fault.File(err, "cannot read the report", next)
	}
	signed, err := attest.Open(text)
	if err != nil {
		return nil, nil, fault.Wrap(fault.Failed, err, file+" is no report", next)
	}
	return text, signed, nil
}

// readBounded reads a file, and a byte more than a report has at most.
func readBounded(file string) ([]byte, error) {
	opened, err := plainfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	return io.ReadAll(io.LimitReader(opened, limits.Attestation+1))
}

// verified returns what a report says if a key has signed it.
func verified(file string, signed *attest.Signed, key ed25519.PublicKey) (*attest.Report, error) {
	report, err := signed.Verify(key)
	if err != nil {
		next := "The report was changed or damaged. Make a new one: `reeve plugin test FILE --report FILE`."
		if errors.Is(err, attest.ErrSignature) && !signed.Key.Equal(key) {
			next = "It says that it was signed by the key " + keyfile.Text(signed.Key) + "."
		}
		return nil, fault.Wrap(fault.Failed, err, "the report "+file+" is not to be trusted", next)
	}
	return report, nil
}

func (c *commands) reportShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Show what a report says",
		Long: `show prints what a report says, and by which key it says that it was signed. It holds the signature against that key, so that what is shown is what was signed;
whose the key is, reeve plugin report verify finds out.`,
		Example: "  reeve plugin report show lighthouse.report",
		RunE: func(_ *cobra.Command, given []string) error {
			_, signed, err := readReport(given[0])
			if err != nil {
				return err
			}
			report, err := verified(given[0], signed, signed.Key)
			if err != nil {
				return err
			}
			return c.print(output.NewReport(report, signed.Key))
		},
	}
}

func (c *commands) reportVerify() *cobra.Command {
	var public, executable string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check that a report is from somebody who is trusted, and that the plugin has passed",
		Long: `verify checks that a report was signed by a key, which --key gives, and says that the plugin conforms. Without --key the cluster is asked whose the key is: it must
be the owner's, or that of an operator whose role is owner, as for reeve plugin add --report. --plugin is the executable that the report must be about.`,
		Example: `  reeve plugin report verify lighthouse.report --key wS2c…=
  reeve plugin report verify lighthouse.report --key release.pub --plugin ./lighthouse`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.verifyReport(cmd.Context(), given[0], public, executable)
		},
	}
	cmd.Flags().StringVar(&public, "key", "", "the public key that must have signed it, or a `FILE` with it")
	cmd.Flags().StringVar(&executable, "plugin", "", "the executable `FILE` that it must be about")
	return cmd
}

func (c *commands) verifyReport(ctx context.Context, file, public, executable string) error {
	_, signed, err := readReport(file)
	if err != nil {
		return err
	}
	key, holder := signed.Key, ""
	if public != "" {
		key, err = keyfile.Public(public)
	} else {
		holder, err = c.holderOf(ctx, key)
	}
	if err != nil {
		return err
	}
	report, err := verified(file, signed, key)
	if err != nil {
		return err
	}
	if executable != "" {
		if err := isAbout(report, file, executable); err != nil {
			return err
		}
	}
	if err := c.print(output.ReportVerified{Report: output.NewReport(report, key), Signer: holder}); err != nil {
		return err
	}
	if report.Result() != attest.Passed {
		return fault.New(fault.Failed, "the report says that the plugin does not conform", "`reeve plugin report show "+file+"` shows why.")
	}
	return nil
}

// isAbout returns why a report is not about an executable.
func isAbout(report *attest.Report, file, executable string) error {
	digest, err := digestOf(executable)
	if err != nil {
		return fault.Wrap(fault.NotFound, err, "cannot read the plugin", "Give the file of the executable.")
	}
	if digest != report.Digest {
		return fault.New(fault.Failed, "the report "+file+" is about an executable with the digest "+report.Digest+", and "+executable+" has "+digest,
			"Test this one: `reeve plugin test "+executable+" --report "+file+"`.")
	}
	return nil
}

// holderOf asks the cluster whose a key is that has signed a report. It is a fault if its reports count for nothing there.
func (c *commands) holderOf(ctx context.Context, key ed25519.PublicKey) (holder string, err error) {
	err = c.withTarget(ctx, func(cluster *target.Target) error {
		known, err := cluster.API().ListOperators(ctx, &clusterv1.ListOperatorsRequest{})
		if err != nil {
			return fault.FromRPC(err, "the cluster does not say whose the key is", "Give the key that you trust with --key.")
		}
		if bytes.Equal(known.GetOwnerPublicKey(), key) {
			holder = "owner"
			return nil
		}
		for _, operator := range known.GetOperators() {
			if !bytes.Equal(operator.GetPublicKey(), key) {
				continue
			}
			holder = "operator " + output.Clean(operator.GetName())
			if operator.GetRole() != clusterv1.OperatorRole_OPERATOR_ROLE_OWNER {
				return fault.New(fault.Failed, "the report was signed by "+holder+", whose role is "+output.Kind(operator.GetRole()), "The cluster takes reports that an owner has signed.")
			}
			return nil
		}
		return fault.New(fault.Failed, "the report says that it was signed by the key "+keyfile.Text(key)+", and nobody in the cluster has that key",
			"Give the key that you trust with --key, or test the plugin yourself: `reeve plugin test FILE --report FILE`.")
	})
	return holder, err
}
