package output

import (
	"fmt"
	"io"
	"time"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// KubernetesPKI is the document of `reeve kubernetes pki show`: what signs in Kubernetes, and where the rotation stands.
type KubernetesPKI struct {
	*kubernetesv1.GetRotationResponse
}

func (p KubernetesPKI) table(w io.Writer, now time.Time) {
	row(w, "KIND", "USE", "FINGERPRINT")
	for _, key := range p.GetKeys() {
		use := "trusted"
		if key.GetSigns() {
			use = "signs"
		}
		row(w, Kind(key.GetKind()), use, key.GetFingerprint())
	}
	if p.GetPhase() == kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY {
		return
	}
	_, _ = fmt.Fprintln(w)
	since := ""
	if began := moment(p.GetSince()); began != nil {
		since = ", since " + age(began, now)
	}
	line(w, kubernetesPhase(Kind(p.GetPhase())), since, ".")
	nextStep(w, "everybody", kubernetesRotate+" "+Kind(p.GetNext()), p.GetWaiting())
}

// KubernetesRotation is the document of `reeve kubernetes pki rotate`.
type KubernetesRotation struct{ Rotation }

// NewKubernetesRotation makes the document of a step of the rotation.
func NewKubernetesRotation(step string, forced, dryRun bool, response *kubernetesv1.RotateResponse) KubernetesRotation {
	return KubernetesRotation{Rotation{Step: step, DryRun: dryRun, Forced: forced, Phase: Kind(response.GetPhase()), Waiting: response.GetWaiting()}}
}

const kubernetesRotate = "reeve kubernetes pki rotate"

func (r KubernetesRotation) table(w io.Writer, _ time.Time) {
	r.section(w, kubernetesPhase(r.Phase), "everybody", kubernetesRotate)
	if r.Phase == "prepared" && !r.DryRun {
		line(w, "Configurations of kubectl know the former authority only: write them anew before the next step (`reeve kubernetes kubeconfig`).")
	}
}

func kubernetesPhase(phase string) string {
	return map[string]string{
		"prepared": "new authorities and a new key of service accounts are known besides the former ones, and do not sign yet",
		"active":   "the new authorities and the new key of service accounts sign, and the former ones are still good",
		"steady":   "there is one authority of each kind and one key of service accounts; what former ones have signed is refused",
	}[phase]
}
