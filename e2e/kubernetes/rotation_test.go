package kubernetes_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// standing is what `reeve kubernetes pki show -o json` says.
type standing struct {
	Phase   string   `json:"phase"`
	Next    string   `json:"next"`
	Waiting []string `json:"waiting"`
	Keys    []struct {
		Kind        string `json:"kind"`
		Fingerprint string `json:"fingerprint"`
		Signs       bool   `json:"signs"`
	} `json:"keys"`
}

func (p *plane) rotation(t *testing.T) standing {
	t.Helper()
	var now standing
	if err := json.Unmarshal([]byte(p.MustReeve(t, "kubernetes", "pki", "show", "-o", "json").Stdout), &now); err != nil {
		t.Fatal(err)
	}
	return now
}

// rotate takes a step, which waits for nobody any more but for the time that pods are given, and waits until everybody works with what it made.
func (p *plane) rotate(t *testing.T, step, phase string) {
	t.Helper()
	p.MustReeve(t, "kubernetes", "pki", "rotate", step, "--force")
	p.adopted(t, step, phase)
}

// adopted waits until everybody works with what a step made. It does not wait for pods.
func (p *plane) adopted(t *testing.T, step, phase string) {
	t.Helper()
	eventually.True(t, soon, "everybody works with what the step "+step+" made", func() (bool, string) {
		now := p.rotation(t)
		waits := slices.DeleteFunc(slices.Clone(now.Waiting), func(who string) bool { return strings.HasPrefix(who, "pods ") })
		return now.Phase == phase && len(waits) == 0, strings.Join(now.Waiting, "; ")
	})
}
