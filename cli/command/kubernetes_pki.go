package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

func (c *commands) kubernetesPKI() *cobra.Command {
	return group("pki", "The authorities of Kubernetes, and the keys by which it signs tokens", c.kubernetesPKIShow(), c.kubernetesPKIRotate())
}

func (c *commands) kubernetesPKIShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show what signs in Kubernetes, and where its rotation stands",
		Long: `show shows the authorities of Kubernetes and the keys by which it signs tokens of service accounts, by the fingerprints of their public keys; and, while they are rotated, what comes
next and who is not ready for it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withSigner(cmd.Context(), func(ctx context.Context, client kubernetesv1.PKIServiceClient) error {
				response, err := client.GetRotation(ctx, &kubernetesv1.GetRotationRequest{})
				return c.answer(output.KubernetesPKI{GetRotationResponse: response}, fault.FromRPC(err, pkiRole+" does not say what signs", ""))
			})
		},
	}
}

func (c *commands) kubernetesPKIRotate() *cobra.Command {
	cmd := group("rotate", "Put new authorities of Kubernetes in the place of the present ones, in three steps",
		c.kubernetesPKIStep("prepare", kubernetesv1.RotationStep_ROTATION_STEP_PREPARE, "Make new authorities and a new key of service accounts, and make them known",
			"prepare makes new authorities and a new key of service accounts, which all control planes and workers know besides the former ones, and which do not sign yet. It is the first step of three; \"activate\" is next."),
		c.kubernetesPKIStep("activate", kubernetesv1.RotationStep_ROTATION_STEP_ACTIVATE, "Sign by the new ones",
			"activate has the new authorities and the new key sign, while the former ones are still good. It waits for every control plane and worker to know the new ones, and for some minutes in which pods are told of them, and says for which. \"retire\" is next."),
		c.kubernetesPKIStep("retire", kubernetesv1.RotationStep_ROTATION_STEP_RETIRE, "Forget the former ones",
			"retire forgets the former authorities and the former key: what they signed is refused from then on. It waits for every control plane and worker to have certificates of the new ones, and for an hour after \"activate\", in which pods are given new tokens, and says for which."))
	cmd.Long = `rotate puts new authorities of Kubernetes, and a new key by which it signs tokens of service accounts, in the place of the present ones without an interruption: prepare, activate, retire, each once
everybody has come far enough. Between them any time may go by; "reeve kubernetes pki show" shows where it stands. At each step every API server is started anew, one after another.

Configurations of kubectl hold the authority of the API servers: write them anew with "reeve kubernetes kubeconfig" between prepare and activate. Pods find the new one within minutes in
the file by which they know the API servers; those that read it only when they start have to be started anew in that time too.`
	return cmd
}

func (c *commands) kubernetesPKIStep(name string, step kubernetesv1.RotationStep, short, long string) *cobra.Command {
	return rotationStep(name, short, long, "take the step although somebody is not ready: who is not cannot work in Kubernetes then until it is", func(ctx context.Context, force, dryRun bool) error {
		return c.withSigner(ctx, func(ctx context.Context, client kubernetesv1.PKIServiceClient) error {
			response, err := client.Rotate(ctx, &kubernetesv1.RotateRequest{Step: step, Force: force, DryRun: dryRun})
			return c.answer(output.NewKubernetesRotation(name, force, dryRun, response), fault.FromRPC(err, "cannot take the step "+name+" of the rotation of Kubernetes' authorities",
				"`reeve kubernetes pki show` shows where the rotation stands. --force goes on without those who are not ready: they cannot work in Kubernetes then until they are."))
		})
	})
}

// withSigner calls kubernetes-pki, on whatever node.
func (c *commands) withSigner(ctx context.Context, call func(context.Context, kubernetesv1.PKIServiceClient) error) error {
	return c.withTarget(ctx, func(cluster *target.Target) error {
		client, err := signer(ctx, cluster)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
		defer cancel()
		return call(bounded, client)
	})
}
