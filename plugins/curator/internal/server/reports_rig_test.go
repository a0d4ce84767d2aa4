package server_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ran is when the suite ran of which reports tell, before any of the tests.
var ran = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reportOn is what the suite says of the build with a letter for its digest, which conforms.
func reportOn(letter, version string) *attest.Report {
	return &attest.Report{
		File: "lamp", Digest: "sha256:" + strings.Repeat(letter, 64),
		Conformance: attest.Conformance{
			SuiteVersion: "0.1.0", Plugin: "lamp", PluginVersion: version, Started: ran, Seconds: 12,
			Machine:  attest.Machine{OS: "linux", Architecture: "amd64", Processors: 2, Kernel: "6.1"},
			Profiles: []attest.Profile{{Profile: "core", Verdict: attest.Conforms}},
			Checks:   []attest.Check{{Check: "handshake.line", Profile: "core", Status: attest.Pass}, {Check: "lifecycle.stop", Profile: "core", Status: attest.Skip}},
		},
	}
}

// failing is a report of a run in which a check failed, or was not run.
func failing(letter, status, verdict string) *attest.Report {
	report := reportOn(letter, "1.0.0")
	report.Checks[0].Status, report.Profiles[0].Verdict = status, verdict
	return report
}

// later is a report of a run that began later.
func later(report *attest.Report, by time.Duration) *attest.Report {
	report.Started = report.Started.Add(by)
	return report
}

func signReport(t *testing.T, key ed25519.PrivateKey, report *attest.Report) []byte {
	t.Helper()
	envelope, err := attest.Sign(report, key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

// addReport gives the catalog a report on the build of lamp with a letter for its digest.
func (c *cluster) addReport(letter string, envelope []byte) (*clusterv1.PluginRecord, error) {
	response, err := c.asOwner().AddPluginReport(c.t.Context(), &clusterv1.AddPluginReportRequest{Plugin: "lamp", Digest: "sha256:" + strings.Repeat(letter, 64), Report: envelope})
	return response.GetPlugin(), err
}

func (c *cluster) getReport(letter string) ([]byte, error) {
	response, err := c.asOwner().GetPluginReport(c.t.Context(), &clusterv1.GetPluginReportRequest{Plugin: "lamp", Digest: "sha256:" + strings.Repeat(letter, 64)})
	return response.GetReport(), err
}

// add adds a version of lamp that asks for nothing, with reports, and approves it.
func (c *cluster) addLamp(version, letter string, envelopes ...[]byte) (*clusterv1.PluginRecord, error) {
	response, err := c.asOwner().AddPlugin(c.t.Context(), &clusterv1.AddPluginRequest{Manifest: lamp(version), Digests: digestOf(letter), Approve: true, Reports: envelopes})
	return response.GetPlugin(), err
}

// listed is the record of a plugin as it is listed.
func (c *cluster) listed(name string) *clusterv1.PluginRecord {
	c.t.Helper()
	response, err := c.asOwner().ListPlugins(c.t.Context(), &clusterv1.ListPluginsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, plugin := range response.GetPlugins() {
		if plugin.GetName() == name {
			return plugin
		}
	}
	return nil
}

// demand sets whether reports are required.
func (c *cluster) demand(required, dryRun bool) error {
	policy := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT}
	if required {
		policy.Conformance = clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED
	}
	_, err := c.asOwner().SetPolicy(c.t.Context(), &clusterv1.SetPolicyRequest{Policy: policy, DryRun: dryRun})
	return err
}
