package server_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/proto/attest"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A report comes with a version, or for one that is in the catalog; what it says is listed, and it is given back as it was given.
func TestReports(t *testing.T) {
	c := newCluster(t)
	envelope := signReport(t, c.owner, reportOn("a", "1.0.0"))
	added, err := c.addLamp("1.0.0", "a", envelope)
	if err != nil {
		t.Fatal(err)
	}
	want := &clusterv1.ConformanceReport{
		Digest: "sha256:" + strings.Repeat("a", 64), Result: clusterv1.ConformanceResult_CONFORMANCE_RESULT_PASSED, SuiteVersion: "0.1.0", Signer: "owner", SignerKey: public(c.owner),
		Profiles: []*clusterv1.ConformanceProfile{{Profile: "core", Verdict: "conforms"}}, Passed: 1, Skipped: 1,
	}
	ignored := protocmp.IgnoreFields(want, "started", "added", "sha256")
	if diff := cmp.Diff([]*clusterv1.ConformanceReport{want}, c.listed("lamp").GetReports(), protocmp.Transform(), ignored); diff != "" || !proto.Equal(c.listed("lamp"), added) {
		t.Errorf("listed: %s", diff)
	}
	if at := added.GetReports()[0].GetStarted().AsTime(); !at.Equal(ran) || added.GetReports()[0].GetAdded() == nil {
		t.Errorf("it began at %s", at)
	}
	if got, err := c.getReport("a"); err != nil || !bytes.Equal(got, envelope) {
		t.Errorf("given back: %q, %v", got, err)
	}
	if entry := c.newest(); entry.GetRpc() != "GetPluginReport" || entry.GetParameters()["digest"] == "" {
		t.Errorf("the audit log says %v", entry)
	}
	// Once more it is the same.
	if again, err := c.addReport("a", envelope); err != nil || again.GetGeneration() != added.GetGeneration() {
		t.Errorf("again: %v, %v", again, err)
	}
	// What was found later counts, and what was found before that does not come back.
	olga := c.addOperator("olga", roleOwner)
	if got, err := c.addReport("a", signReport(t, olga.key, later(failing("a", attest.Fail, attest.DoesNotConform), time.Hour))); err != nil ||
		got.GetReports()[0].GetResult() != clusterv1.ConformanceResult_CONFORMANCE_RESULT_FAILED || got.GetReports()[0].GetSigner() != "operator olga" {
		t.Errorf("later: %v, %v", got, err)
	}
	_, err = c.addReport("a", envelope)
	wantCode(t, err, codes.FailedPrecondition, "of a later run")
	if entry := c.newest(); entry.GetRpc() != "AddPluginReport" || entry.GetParameters()["plugin"] != "lamp" || entry.GetParameters()["report"] != "" {
		t.Errorf("the audit log says %v", entry)
	}
	// Who signed it goes: it counts, and the list says so.
	if c.listed("lamp").GetReports()[0].GetSignerGone() {
		t.Error("the signer is said to be gone")
	}
	if _, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "olga"}); err != nil {
		t.Fatal(err)
	}
	if !c.listed("lamp").GetReports()[0].GetSignerGone() {
		t.Error("a revoked signer is not named")
	}
	_, err = c.addReport("a", signReport(t, olga.key, later(reportOn("a", "1.0.0"), 2*time.Hour)))
	wantCode(t, err, codes.FailedPrecondition, "nobody in the cluster has that key", "reeve plugin test")
	// A node is given none of it.
	w := watch(t, c.asNode())
	if _, err := c.asOwner().AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Fatal(err)
	}
	told := w.await("lamp", func(response *clusterv1.WatchResponse) bool { return pluginOf(response, "lamp") != nil })
	if given := pluginOf(told, "lamp"); len(given.GetReports()) != 0 {
		t.Errorf("the node is given %v", given.GetReports())
	}
	// It goes with its executable: the second version after it.
	for n, letter := range []string{"b", "c"} {
		if _, err := c.addLamp(fmt.Sprintf("1.%d.0", n+1), letter); err != nil {
			t.Fatal(err)
		}
	}
	if listed := c.listed("lamp"); len(listed.GetReports()) != 0 {
		t.Errorf("listed: %v", listed.GetReports())
	}
	_, err = c.getReport("a")
	wantCode(t, err, codes.NotFound, "reeve plugin show lamp")
	_, err = c.addReport("a", envelope)
	wantCode(t, err, codes.NotFound, "no executable")
	// And with its plugin.
	if _, err := c.addReport("c", signReport(t, c.owner, reportOn("c", "1.2.0"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asOwner().RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true}); err != nil {
		t.Fatal(err)
	}
	_, err = c.getReport("c")
	wantCode(t, err, codes.NotFound)
}

func pluginOf(response *clusterv1.WatchResponse, name string) *clusterv1.PluginRecord {
	for _, plugin := range response.GetPlugins() {
		if plugin.GetName() == name {
			return plugin
		}
	}
	return nil
}

// forgeReport signs any payload of any type, as who has a key and means harm can.
func forgeReport(key ed25519.PrivateKey, payloadType, payload string) []byte {
	signed := ed25519.Sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	return fmt.Appendf(nil, `{"payloadType": %q, "payload": %q, "signatures": [{"keyid": %q, "sig": %q}]}`, payloadType,
		base64.StdEncoding.EncodeToString([]byte(payload)), attest.KeyID(public(key)), base64.StdEncoding.EncodeToString(signed))
}

// payloadOf is what is signed of a report.
func payloadOf(t *testing.T, envelope []byte) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(envelope), `"payload":"`)
	encoded, _, _ := strings.Cut(rest, `"`)
	payload, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(payload)
}

// TestForgedReports: none of these gets in, with a version or for one that is there, and nothing else does with it.
func TestForgedReports(t *testing.T) {
	c := newCluster(t)
	if _, err := c.addLamp("1.0.0", "a"); err != nil {
		t.Fatal(err)
	}
	good := signReport(t, c.owner, reportOn("a", "1.0.0"))
	payload := payloadOf(t, good)
	viewer, operator := c.addOperator("vera", roleViewer), c.addOperator("otto", roleOperator)
	revoked := c.addOperator("rita", roleOwner)
	if _, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "rita"}); err != nil {
		t.Fatal(err)
	}
	stranger := newKey(t)
	named := func(key, as ed25519.PrivateKey) []byte {
		return bytes.Replace(signReport(t, key, reportOn("a", "1.0.0")), []byte(attest.KeyID(public(key))), []byte(attest.KeyID(public(as))), 1)
	}
	for name, test := range map[string]struct {
		envelope []byte
		code     codes.Code
		text     string
	}{
		"a stranger's":             {signReport(t, stranger, reportOn("a", "1.0.0")), codes.FailedPrecondition, "nobody in the cluster has that key"},
		"a stranger's as owner's":  {named(stranger, c.owner), codes.InvalidArgument, "the signature is not that of the key"},
		"the node's":               {signReport(t, c.node, reportOn("a", "1.0.0")), codes.FailedPrecondition, "nobody in the cluster has that key"},
		"a viewer's":               {signReport(t, viewer.key, reportOn("a", "1.0.0")), codes.FailedPrecondition, "operator vera, whose role is viewer"},
		"an operator's":            {signReport(t, operator.key, reportOn("a", "1.0.0")), codes.FailedPrecondition, "operator otto, whose role is operator"},
		"one who was revoked":      {signReport(t, revoked.key, reportOn("a", "1.0.0")), codes.FailedPrecondition, "nobody in the cluster has that key"},
		"another digest":           {signReport(t, c.owner, reportOn("b", "1.0.0")), codes.InvalidArgument, "this is about sha256:aaaa"},
		"another payload type":     {forgeReport(c.owner, "application/json", payload), codes.InvalidArgument, "application/json"},
		"another statement":        {forgeReport(c.owner, attest.PayloadType, strings.Replace(payload, "Statement/v1", "Statement/v0", 1)), codes.InvalidArgument, "its type is"},
		"two results":              {forgeReport(c.owner, attest.PayloadType, strings.Replace(payload, `"result":`, `"result":"FAILED","result":`, 1)), codes.InvalidArgument, "is there twice"},
		"results of two spellings": {forgeReport(c.owner, attest.PayloadType, strings.Replace(payload, `"result":`, `"RESULT":"FAILED","result":`, 1)), codes.InvalidArgument, "is not written as"},
		"a result that is a lie":   {forgeReport(c.owner, attest.PayloadType, strings.Replace(payload, `"status":"pass"`, `"status":"fail"`, 1)), codes.InvalidArgument, "by its checks"},
		"too large":                {append(bytes.Clone(good), bytes.Repeat([]byte(" "), limits.Attestation)...), codes.InvalidArgument, "more than"},
		"nothing":                  {nil, codes.InvalidArgument, "the envelope"},
		"of tomorrow":              {signReport(t, c.owner, later(reportOn("a", "1.0.0"), time.Since(ran)+24*time.Hour)), codes.InvalidArgument, "set the clocks right"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.listed("lamp")
			_, err := c.addReport("a", test.envelope)
			wantCode(t, err, test.code, test.text)
			_, err = c.addLamp("2.0.0", "a", test.envelope)
			wantCode(t, err, test.code, test.text)
			if after := c.listed("lamp"); !proto.Equal(before, after) {
				t.Errorf("the catalog has %v", after)
			}
		})
	}
	_, err := c.addLamp("2.0.0", "a", good, signReport(t, c.owner, later(reportOn("a", "1.0.0"), time.Hour)))
	wantCode(t, err, codes.InvalidArgument, "reports[1]")
	_, err = c.asOwner().AddPluginReport(t.Context(), &clusterv1.AddPluginReportRequest{Plugin: "lamp", Digest: "sha256:a", Report: good})
	wantCode(t, err, codes.InvalidArgument, "digest")
	_, err = c.asOwner().AddPluginReport(t.Context(), &clusterv1.AddPluginReportRequest{Plugin: "nothing", Digest: digestOf("a")["linux/amd64"], Report: good})
	wantCode(t, err, codes.NotFound)
	// The same operator may have two clusters: what it has signed counts in both.
	other := oneOfMany(t, etcd, nil)
	response, err := other.asOwner().AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: "olga", Role: roleOwner, PublicKey: public(c.owner)})
	if err != nil {
		t.Fatal(err)
	}
	if added, err := other.addLamp("1.0.0", "a", good); err != nil || added.GetReports()[0].GetSigner() != "operator "+response.GetOperator().GetName() {
		t.Errorf("on another cluster of the same operator: %v, %v", added, err)
	}
}

// TestConformanceIsDemanded: with the policy nothing gets into the catalog, into the place of what runs, or onto a node without a report that says that it conforms.
func TestConformanceIsDemanded(t *testing.T) {
	c := newCluster(t)
	owner, ctx := c.asOwner(), t.Context()
	// What nodes run has no reports: the policy is refused with their names, and what is only in the catalog is not in the way.
	for _, dryRun := range []bool{true, false} {
		err := c.demand(true, dryRun)
		wantCode(t, err, codes.FailedPrecondition, "plugin consensus 1.0.0 for linux/amd64, sha256:0123", "plugin curator 1.0.0", "`reeve plugin report add REPORT`")
		if strings.Contains(err.Error(), "extras") {
			t.Errorf("what no node runs is in the way: %v", err)
		}
	}
	c.reportAll()
	if err := c.demand(true, false); err != nil {
		t.Fatal(err)
	}
	if policy, err := owner.GetPolicy(ctx, &clusterv1.GetPolicyRequest{}); err != nil || policy.GetPolicy().GetConformance() != clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED {
		t.Errorf("the policy is %v, %v", policy, err)
	}
	// A new plugin.
	for _, envelopes := range [][][]byte{nil, {signReport(t, c.owner, failing("a", attest.Fail, attest.DoesNotConform))}, {signReport(t, c.owner, failing("a", attest.NotRun, attest.Incomplete))}} {
		_, err := c.addLamp("1.0.0", "a", envelopes...)
		wantCode(t, err, codes.FailedPrecondition, "plugin lamp 1.0.0 for linux/amd64, "+digestOf("a")["linux/amd64"], "`reeve plugin test FILE --report REPORT`")
	}
	_, err := owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: lamp("1.0.0"), Digests: digestOf("a")})
	wantCode(t, err, codes.FailedPrecondition, "has no report") // also one that would wait
	if _, err := c.addLamp("1.0.0", "a", signReport(t, c.owner, reportOn("a", "1.0.0"))); err != nil {
		t.Fatal(err)
	}
	// A role of it, and of one without a report.
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Fatal(err)
	}
	_, err = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"})
	wantCode(t, err, codes.FailedPrecondition, "plugin extras 1.0.0")
	_, err = owner.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: c.id, Roles: []*clusterv1.RoleAssignment{
		{Role: "store"}, {Role: "api", Configuration: `{"listen": "127.0.0.1:0"}`}, {Role: "lamp"}, {Role: "lighthouse"},
	}})
	wantCode(t, err, codes.FailedPrecondition, "plugin extras 1.0.0")
	newcomer := identity.NodeID(public(c.secondNode()))
	c.setState(newcomer, clusterv1.NodeState_NODE_STATE_NEW)
	_, err = owner.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: newcomer, SetRoles: true, Roles: []*clusterv1.RoleAssignment{{Role: "hostsfile"}}})
	wantCode(t, err, codes.FailedPrecondition, "plugin extras 1.0.0")
	if _, err := owner.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: newcomer, SetRoles: true, Roles: []*clusterv1.RoleAssignment{{Role: "lamp"}}}); err != nil {
		t.Errorf("a node that runs what has a report: %v", err)
	}
	// Another version, and another platform of the one that runs.
	_, err = c.addLamp("1.1.0", "b")
	wantCode(t, err, codes.FailedPrecondition, "plugin lamp 1.1.0")
	more := map[string]string{"linux/amd64": digestOf("a")["linux/amd64"], "linux/arm64": digestOf("c")["linux/amd64"]}
	_, err = owner.AddPlugin(ctx, &clusterv1.AddPluginRequest{Manifest: lamp("1.0.0"), Digests: more})
	wantCode(t, err, codes.FailedPrecondition, "plugin lamp 1.0.0 for linux/arm64")
	// A report that takes back what another one said, of what a node runs.
	_, err = c.addReport("a", signReport(t, c.owner, later(failing("a", attest.Fail, attest.DoesNotConform), time.Hour)))
	wantCode(t, err, codes.FailedPrecondition, "has a report which says that it does not conform")
	// What changes nothing of this goes on.
	if _, err := owner.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Errorf("a role is taken away: %v", err)
	}
	if _, err := owner.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: "extras", Grants: &clusterv1.RoleGrants{Role: "lighthouse"}}); err != nil {
		t.Errorf("grants of a plugin without a report: %v", err)
	}
	if err := c.demand(false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.addLamp("1.1.0", "b"); err != nil {
		t.Errorf("without the policy: %v", err)
	}
}

// reportAll adds reports to the plugins that nodes run, which all have the same digest here.
func (c *cluster) reportAll() {
	c.t.Helper()
	report := reportOn("a", "1.0.0")
	report.Digest = digests["linux/amd64"]
	for _, name := range []string{"consensus", "curator"} {
		if _, err := c.asOwner().AddPluginReport(c.t.Context(), &clusterv1.AddPluginReportRequest{Plugin: name, Digest: report.Digest, Report: signReport(c.t, c.owner, report)}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A version that waited when the policy came is not approved without a report, and one that ran before is not gone back to.
func TestWhatWasThereBeforeThePolicy(t *testing.T) {
	c := newCluster(t)
	c.reportAll()
	if _, err := c.addLamp("1.0.0", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.addLamp("1.1.0", "b", signReport(t, c.owner, reportOn("b", "1.1.0"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asOwner().AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"}); err != nil {
		t.Fatal(err)
	}
	waits := c.offer(lamp("1.2.0", readPath("/srv")), digestOf("c"))
	w := watch(t, c.asNode())
	w.await("lamp with what ran before", func(response *clusterv1.WatchResponse) bool {
		return pluginOf(response, "lamp").GetPrevious().GetVersion() == "1.0.0"
	})
	if err := c.demand(true, false); err != nil {
		t.Fatal(err)
	}
	w.await("lamp without what ran before", func(response *clusterv1.WatchResponse) bool {
		return pluginOf(response, "lamp").GetVersion() == "1.1.0" && pluginOf(response, "lamp").GetPrevious() == nil
	})
	_, err := c.asOwner().ApprovePlugin(t.Context(), approval(waits))
	wantCode(t, err, codes.FailedPrecondition, "plugin lamp 1.2.0")
	// Reports for both, and all is as it was.
	if _, err := c.addReport("a", signReport(t, c.owner, reportOn("a", "1.0.0"))); err != nil {
		t.Fatal(err)
	}
	w.await("lamp with what ran before again", func(response *clusterv1.WatchResponse) bool {
		return pluginOf(response, "lamp").GetPrevious().GetVersion() == "1.0.0"
	})
	if _, err := c.addReport("c", signReport(t, c.owner, reportOn("c", "1.2.0"))); err != nil {
		t.Fatal(err)
	}
	c.approve(c.listed("lamp"))
}

// The reports that come with the built-in plugins are there from the start, and count.
func TestReportsOfTheGenesis(t *testing.T) {
	key, other := newKey(t), newKey(t)
	ask := func(owner, node ed25519.PrivateKey) *clusterv1.BootstrapRequest {
		asked := request(node, owner)
		for n, letter := range []string{"a", "b", "c"} {
			asked.Plugins[n].Digests = digestOf(letter)
			asked.Reports = append(asked.Reports, signReport(t, key, reportOn(letter, "1.0.0")))
		}
		asked.ReportsKey = public(key)
		return asked
	}
	for name, test := range map[string]struct {
		change func(*clusterv1.BootstrapRequest)
		text   string
	}{
		"no key":           {func(r *clusterv1.BootstrapRequest) { r.ReportsKey = nil }, "reports_key"},
		"another key":      {func(r *clusterv1.BootstrapRequest) { r.ReportsKey = public(other) }, "reports[0]"},
		"another's report": {func(r *clusterv1.BootstrapRequest) { r.Reports[1] = signReport(t, other, reportOn("b", "1.0.0")) }, "reports[1]"},
		"another plugin's": {func(r *clusterv1.BootstrapRequest) { r.Reports[2] = signReport(t, key, reportOn("d", "1.0.0")) }, "is not among the plugins"},
		"twice":            {func(r *clusterv1.BootstrapRequest) { r.Reports[2] = r.Reports[0] }, "another report on"},
		"without a proof": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[0].Reports = []*clusterv1.ConformanceReport{{Digest: "x", Result: clusterv1.ConformanceResult_CONFORMANCE_RESULT_PASSED}}
		}, "plugins[0].reports"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ask(newKey(t), newKey(t))
			test.change(asked)
			_, err := bootstrap.NewService(time.Now).Bootstrap(t.Context(), asked)
			wantCode(t, err, codes.InvalidArgument, test.text)
		})
	}
	c := &cluster{t: t, prefix: etcd.NewPrefix(), owner: newKey(t)}
	c.node = firstNode(c.prefix)
	c.curator = start(t, etcd, c.prefix, nil)
	response, err := c.curator.service.Bootstrap(t.Context(), ask(c.owner, c.node))
	if err != nil {
		t.Fatal(err)
	}
	c.ca = response.GetCaCertificates()
	c.curator.ready()
	listed := c.listed("consensus")
	if len(listed.GetReports()) != 1 || listed.GetReports()[0].GetSigner() != "built in" || listed.GetReports()[0].GetSignerGone() || !bytes.Equal(listed.GetReports()[0].GetSignerKey(), public(key)) {
		t.Errorf("listed: %v", listed.GetReports())
	}
	got, err := c.asOwner().GetPluginReport(t.Context(), &clusterv1.GetPluginReportRequest{Plugin: "consensus", Digest: digestOf("a")["linux/amd64"]})
	if err != nil || !bytes.Equal(got.GetReport(), ask(c.owner, c.node).GetReports()[0]) {
		t.Errorf("given back: %v, %v", got, err)
	}
	if err := c.demand(true, false); err != nil {
		t.Error(err)
	}
}
