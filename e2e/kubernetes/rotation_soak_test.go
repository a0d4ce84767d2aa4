//go:build soak

package kubernetes_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRotation puts new authorities and a new key of service accounts in the place of the first ones, while operators and service accounts work on.
func TestRotation(t *testing.T) {
	t.Parallel()
	p := newPlane(t, shared.Cluster(t))
	p.keep(t, "first")
	p.mustKubectl(t, "create", "serviceaccount", "robot")
	p.mustKubectl(t, "create", "clusterrolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
	formerOperator, formerRobot, formerConfig := p.operatorNow(t, "former"), p.robotNow(t, "former"), p.kubeconfig
	works := func(when string, configs ...string) {
		t.Helper()
		for _, config := range configs {
			eventually.True(t, soon, when+", "+filepath.Base(config)+" reads", func() (bool, string) {
				got := p.by(t, config, "get", "configmap", "first", "-o", "jsonpath={.data.is}")
				return got.Stdout == "kept", got.String()
			})
		}
	}
	refused := func(when string, configs ...string) {
		t.Helper()
		for _, config := range configs {
			eventually.True(t, soon, when+", "+filepath.Base(config)+" is refused", func() (bool, string) {
				got := p.by(t, config, "get", "configmap", "first")
				return got.Code != 0 && strings.Contains(got.Stderr, "Unauthorized"), got.String()
			})
		}
	}
	works("at first", formerConfig, formerOperator, formerRobot)
	began := p.rotation(t)
	if began.Phase != "steady" || began.Next != "prepare" || len(began.Keys) != 4 {
		t.Fatalf("it stands at %+v", began)
	}
	for _, wrong := range []string{"activate", "retire"} {
		if result := p.Reeve(t, "kubernetes", "pki", "rotate", wrong, "--force"); result.Code == 0 || !strings.Contains(result.Stderr, "the step that comes next is prepare") {
			t.Errorf("the step %s comes first: %s", wrong, result)
		}
	}
	p.MustReeve(t, "kubernetes", "pki", "rotate", "prepare", "--dry-run")
	if now := p.rotation(t); now.Phase != "steady" {
		t.Errorf("a dry run has changed something: %+v", now)
	}
	instance, server := p.Status(t).Role(controller).InstanceID, p.programs(t)["kube-apiserver"].PID

	p.MustReeve(t, "kubernetes", "pki", "rotate", "prepare", "--force")
	// At once: pods have three minutes from the step on.
	if result := p.Reeve(t, "kubernetes", "pki", "rotate", "activate"); result.Code == 0 || !strings.Contains(result.Stderr, "pods may not have found the new authorities") {
		t.Errorf("pods are given no time: %s", result)
	}
	p.adopted(t, "prepare", "prepared")
	works("when new ones are known", formerConfig, formerOperator, formerRobot)
	if now := p.programs(t)["kube-apiserver"].PID; now == server {
		t.Error("the API server was not started anew")
	}
	// What was written before knows one authority; from now on both.
	p.kubeconfig = filepath.Join(p.Home, "kubeconfig-prepared")
	p.MustReeve(t, "kubernetes", "kubeconfig", "--file", p.kubeconfig)
	works("when new ones are known", p.kubeconfig)

	p.rotate(t, "activate", "active")
	nextOperator, nextRobot := p.operatorNow(t, "next"), p.robotNow(t, "next")
	works("when the new ones sign", p.kubeconfig, formerOperator, formerRobot, nextOperator, nextRobot)
	if result := p.Reeve(t, "kubernetes", "pki", "rotate", "retire"); result.Code == 0 || !strings.Contains(result.Stderr, "tokens of service accounts") {
		t.Errorf("the tokens of pods are given no time: %s", result)
	}

	p.rotate(t, "retire", "steady")
	refused("when the former ones are retired", formerOperator, formerRobot)
	works("when the former ones are retired", p.kubeconfig, nextOperator, nextRobot)
	p.kubeconfig = filepath.Join(p.Home, "kubeconfig-retired")
	p.MustReeve(t, "kubernetes", "kubeconfig", "--file", p.kubeconfig)
	p.keep(t, "last")
	ended := p.rotation(t)
	if len(ended.Keys) != 4 {
		t.Errorf("it stands at %+v", ended)
	}
	for _, key := range began.Keys {
		if slices.Contains(ended.Keys, key) {
			t.Errorf("the key of %s is the same", key.Kind)
		}
	}
	// What pods know the API servers by is the one authority.
	eventually.True(t, soon, "namespaces hold the new authority only", func() (bool, string) {
		held := p.kubectl(t, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
		return strings.Count(held.Stdout, "BEGIN CERTIFICATE") == 1, held.String()
	})
	p.AwaitUp(t, soon, pki, controller)
	if now := p.Status(t).Role(controller).InstanceID; now != instance {
		t.Errorf("it is another instance of the role: %s in place of %s", now, instance)
	}
}

// by runs kubectl with a configuration.
func (p *plane) by(t *testing.T, config string, arguments ...string) devcluster.Result {
	t.Helper()
	own := *p
	own.kubeconfig = config
	return own.kubectl(t, arguments...)
}

// certificateNow is a certificate as the owner is given one now, and its key.
func (p *plane) certificateNow(t *testing.T) (certificate, key []byte) {
	t.Helper()
	var answer struct {
		Status struct {
			Certificate string `json:"clientCertificateData"`
			Key         string `json:"clientKeyData"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(p.MustReeve(t, "kubernetes", "credential").Stdout), &answer); err != nil {
		t.Fatal(err)
	}
	return []byte(answer.Status.Certificate), []byte(answer.Status.Key)
}

// operatorNow writes a configuration with such a certificate.
func (p *plane) operatorNow(t *testing.T, name string) string {
	t.Helper()
	certificate, key := p.certificateNow(t)
	return p.configFor(t, name+"-operator", map[string]any{"client-certificate-data": certificate, "client-key-data": key})
}

// robotNow writes a configuration with a token of a service account as it is given one now.
func (p *plane) robotNow(t *testing.T, name string) string {
	t.Helper()
	var token string
	eventually.True(t, soon, "a token", func() (bool, string) {
		result := p.kubectl(t, "create", "token", "robot")
		token = strings.TrimSpace(result.Stdout)
		return result.Code == 0, result.Stderr
	})
	return p.configFor(t, name+"-robot", map[string]any{"token": token})
}

// configFor writes a configuration for a user, who takes any API server for the right one: who it is, others look at.
func (p *plane) configFor(t *testing.T, name string, user map[string]any) string {
	t.Helper()
	server := p.mustKubectl(t, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}").Stdout
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": server, "insecure-skip-tls-verify": true}}},
		"users":    []any{map[string]any{"name": "test", "user": user}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.Home, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
