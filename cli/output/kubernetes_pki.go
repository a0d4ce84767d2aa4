package output

import (
	"fmt"
	"io"
	"time"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

var (
	_ Document = KubernetesPKI{}
	_ Document = KubernetesRotation{}
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
	kubernetesNext(w, Kind(p.GetNext()), p.GetWaiting())
}

// KubernetesRotation is the document of `reeve kubernetes pki rotate`.
type KubernetesRotation struct {
	// Step is "prepare", "activate" or "retire".
	Step   string `json:"step"`
	DryRun bool   `json:"dry_run"`
	Forced bool   `json:"forced"`
	// Phase is where the rotation stands then: "steady", "prepared" or "active".
	Phase string `json:"phase"`
	// Waiting is who is not ready for the next step, and why not.
	Waiting []string `json:"waiting"`
}

// NewKubernetesRotation makes the document of a step of the rotation.
func NewKubernetesRotation(step string, forced, dryRun bool, response *kubernetesv1.RotateResponse) KubernetesRotation {
	return KubernetesRotation{Step: step, DryRun: dryRun, Forced: forced, Phase: Kind(response.GetPhase()), Waiting: response.GetWaiting()}
}

func (r KubernetesRotation) table(w io.Writer, _ time.Time) {
	text := kubernetesPhase(r.Phase)
	if r.DryRun {
		line(w, "With that step, ", text, ". Nothing was changed (--dry-run).")
	} else {
		line(w, text, ".")
	}
	if next := map[string]string{"prepared": "activate", "active": "retire"}[r.Phase]; next != "" {
		kubernetesNext(w, next, r.Waiting)
	}
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

// kubernetesNext says whether the next step can be taken.
func kubernetesNext(w io.Writer, next string, waiting []string) {
	if len(waiting) == 0 {
		line(w, "Everybody is ready for the next step: `reeve kubernetes pki rotate ", next, "`.")
		return
	}
	line(w, "The next step, `reeve kubernetes pki rotate ", next, "`, waits for:")
	for _, each := range waiting {
		row(w, "  "+each)
	}
}
