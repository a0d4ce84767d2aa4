package pki

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// rotation is what the store holds of one that is under way.
type rotation struct {
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
}

// phaseOf reads where the rotation stands; nothing: there is none under way.
func phaseOf(text []byte) (kubernetesv1.RotationPhase, time.Time, error) {
	if text == nil {
		return kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY, time.Time{}, nil
	}
	var held rotation
	err := json.Unmarshal(text, &held)
	for _, phase := range []kubernetesv1.RotationPhase{kubernetesv1.RotationPhase_ROTATION_PHASE_PREPARED, kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE} {
		if err == nil && held.Phase == phaseName(phase) {
			return phase, held.Since, nil
		}
	}
	return 0, time.Time{}, fmt.Errorf("the store holds something at %s that is no phase of a rotation; it is left as it is: restore it from a backup", keyRotation)
}

// nextStep is the step that comes after a phase.
func nextStep(phase kubernetesv1.RotationPhase) kubernetesv1.RotationStep {
	switch phase {
	case kubernetesv1.RotationPhase_ROTATION_PHASE_PREPARED:
		return kubernetesv1.RotationStep_ROTATION_STEP_ACTIVATE
	case kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE:
		return kubernetesv1.RotationStep_ROTATION_STEP_RETIRE
	}
	return kubernetesv1.RotationStep_ROTATION_STEP_PREPARE
}

func phaseName(phase kubernetesv1.RotationPhase) string {
	return strings.ToLower(strings.TrimPrefix(phase.String(), "ROTATION_PHASE_"))
}

func stepName(step kubernetesv1.RotationStep) string {
	return strings.ToLower(strings.TrimPrefix(step.String(), "ROTATION_STEP_"))
}

// after returns the authorities as they are when the step has been taken that comes next.
func (a *authorities) after(now time.Time) (*authorities, error) {
	now = now.UTC()
	lists := make(map[string][]stored)
	var under *rotation
	switch nextStep(a.phase) {
	case kubernetesv1.RotationStep_ROTATION_STEP_PREPARE:
		made, err := makeAll(now)
		if err != nil {
			return nil, err
		}
		for key, list := range a.lists {
			lists[key] = []stored{list[0], made[key][0]}
		}
		under = &rotation{Phase: phaseName(kubernetesv1.RotationPhase_ROTATION_PHASE_PREPARED), Since: now}
	case kubernetesv1.RotationStep_ROTATION_STEP_ACTIVATE:
		for key, list := range a.lists {
			former := list[0]
			if former.Certificate != nil {
				former.Key = nil // it has nothing to sign any more
			}
			lists[key] = []stored{list[len(list)-1], former}
		}
		under = &rotation{Phase: phaseName(kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE), Since: now}
	default:
		for key, list := range a.lists {
			lists[key] = list[:1]
		}
	}
	var text []byte
	if under != nil {
		var err error
		if text, err = json.Marshal(under); err != nil {
			return nil, err
		}
	}
	return authoritiesOf(lists, text)
}

// errOvertaken says that others were stored in the meantime.
var errOvertaken = errors.New("the authorities were changed by somebody else in the meantime")

// replace stores next in the place of present, if the store still holds exactly that, and returns what it is then.
func replace(ctx context.Context, kv store, present, next *authorities) (*authorities, error) {
	var same []clientv3.Cmp
	var writes []clientv3.Op
	for _, key := range append(slices.Sorted(maps.Keys(kinds())), keyRotation) {
		same = append(same, clientv3.Compare(clientv3.ModRevision(key), "=", present.versions[key]))
	}
	for key, list := range next.lists {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		writes = append(writes, clientv3.OpPut(key, string(text)))
	}
	if next.phase == kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY {
		writes = append(writes, clientv3.OpDelete(keyRotation))
	} else {
		text, err := json.Marshal(rotation{Phase: phaseName(next.phase), Since: next.since})
		if err != nil {
			return nil, err
		}
		writes = append(writes, clientv3.OpPut(keyRotation, string(text)))
	}
	answer, err := kv.Txn(ctx).If(same...).Then(writes...).Commit()
	switch {
	case err != nil:
		return nil, err
	case !answer.Succeeded:
		return nil, errOvertaken
	}
	stored := *next
	stored.revision = uint64(answer.Header.Revision)
	return &stored, nil
}

// keys are the keys that are good, by their kinds, that which signs first.
func (a *authorities) keys() ([]*kubernetesv1.SigningKey, error) {
	var all []*kubernetesv1.SigningKey
	for key, kind := range kinds() {
		for n, each := range a.lists[key] {
			public, err := each.public()
			if err != nil {
				return nil, fmt.Errorf("a key at %s: %w", key, err)
			}
			sum := sha256.Sum256(public)
			all = append(all, &kubernetesv1.SigningKey{Kind: kind, Fingerprint: hex.EncodeToString(sum[:]), Signs: n == 0})
		}
	}
	slices.SortStableFunc(all, func(a, b *kubernetesv1.SigningKey) int { return int(a.GetKind()) - int(b.GetKind()) })
	return all, nil
}

// public is the public half of a key: SubjectPublicKeyInfo, DER.
func (s stored) public() ([]byte, error) {
	if s.Certificate != nil {
		certificate, err := x509.ParseCertificate(s.Certificate)
		if err != nil {
			return nil, err
		}
		return certificate.RawSubjectPublicKeyInfo, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(s.Key)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("it is a %T", key)
	}
	return x509.MarshalPKIXPublicKey(signer.Public())
}
