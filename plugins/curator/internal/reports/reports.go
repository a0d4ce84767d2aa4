package reports

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// BuiltIn is the signer of the reports that came with the built-in plugins.
	BuiltIn = "built in"
	// owner is the signer who has the owner key, and operator begins those who are operators.
	owner, operator = "owner", "operator "
	// skew is how far the clock of who tested may be ahead.
	skew = 10 * time.Minute
)

// Take returns what the catalog is to hold of a report that one of the cluster's owners has signed.
func Take(state *store.State, envelope []byte, now time.Time) (*clusterv1.ConformanceReport, error) {
	signed, err := attest.Open(envelope)
	if err != nil {
		return nil, unfit(err)
	}
	signer, err := signerOf(state, signed.Key)
	if err != nil {
		return nil, err
	}
	report, err := signed.Verify(signed.Key)
	if err != nil {
		return nil, unfit(err)
	}
	if ahead := report.Started.Sub(now); ahead > skew {
		return nil, answer.Errorf(codes.InvalidArgument, "the run that the report is about began at %s, which is %s from now: set the clocks right and test the plugin again",
			report.Started.UTC().Format(time.RFC3339), ahead.Round(time.Second))
	}
	return record(report, envelope, signer, signed.Key, now), nil
}

// TakeBuiltIn returns what the catalog is to hold of a report that came with the built-in plugins: who made the cluster trusts their digests by the same file.
func TakeBuiltIn(key ed25519.PublicKey, envelope []byte, now time.Time) (*clusterv1.ConformanceReport, error) {
	signed, err := attest.Open(envelope)
	if err != nil {
		return nil, err
	}
	report, err := signed.Verify(key)
	if err != nil {
		return nil, err
	}
	return record(report, envelope, BuiltIn, key, now), nil
}

// signerOf returns who has a key. The error says why reports of theirs do not count.
func signerOf(state *store.State, key ed25519.PublicKey) (string, error) {
	const next = "the cluster takes reports that the holder of the owner key or an operator whose role is owner has signed: test the plugin with such a key (`reeve plugin test FILE --report REPORT --key KEY`)"
	if bytes.Equal(key, state.Cluster.GetOwnerPublicKey()) {
		return owner, nil
	}
	for _, known := range state.OperatorList() {
		if !bytes.Equal(key, known.GetPublicKey()) {
			continue
		}
		if known.GetRole() != clusterv1.OperatorRole_OPERATOR_ROLE_OWNER {
			return "", answer.Errorf(codes.FailedPrecondition, "the report was signed by operator %s, whose role is %s: %s", known.GetName(),
				strings.ToLower(strings.TrimPrefix(known.GetRole().String(), "OPERATOR_ROLE_")), next)
		}
		return operator + known.GetName(), nil
	}
	return "", answer.Errorf(codes.FailedPrecondition, "the report says that it was signed by the key %s, and nobody in the cluster has that key: %s", attest.KeyID(key), next)
}

// Gone reports whether who signed a report is none of the cluster's owners any more. The report counts all the same: the cluster knew the key when it was taken in.
func Gone(state *store.State, report *clusterv1.ConformanceReport) bool {
	if report.GetSigner() == BuiltIn {
		return false
	}
	signer, err := signerOf(state, report.GetSignerKey())
	return err != nil || signer != report.GetSigner()
}

// unfit says that something is no report. What it says of it may quote it, and stays out of the audit log.
func unfit(err error) error {
	reason := "it is no report of the conformance suite"
	if errors.Is(err, attest.ErrSignature) {
		reason = "the signature of the report is wrong"
	}
	return answer.Veiled(codes.InvalidArgument, reason, "the report is not to be trusted: %v: a report is what `reeve plugin test FILE --report REPORT` writes", err)
}

func record(report *attest.Report, envelope []byte, signer string, key ed25519.PublicKey, now time.Time) *clusterv1.ConformanceReport {
	results := map[string]clusterv1.ConformanceResult{
		attest.Passed: clusterv1.ConformanceResult_CONFORMANCE_RESULT_PASSED, attest.Failed: clusterv1.ConformanceResult_CONFORMANCE_RESULT_FAILED,
	}
	sum := sha256.Sum256(envelope)
	made := &clusterv1.ConformanceReport{
		Digest: report.Digest, Result: results[report.Result()], SuiteVersion: report.SuiteVersion, Started: timestamppb.New(report.Started), Added: timestamppb.New(now),
		Signer: signer, SignerKey: key, Sha256: sum[:],
		Passed: uint32(report.Count(attest.Pass)), Failed: uint32(report.Count(attest.Fail)), Skipped: uint32(report.Count(attest.Skip)), NotRun: uint32(report.Count(attest.NotRun)),
	}
	for _, profile := range report.Profiles {
		made.Profiles = append(made.Profiles, &clusterv1.ConformanceProfile{Profile: profile.Profile, Verdict: profile.Verdict})
	}
	return made
}

// Put puts a report into the record of a plugin, in the place of one on the same executable. It returns false if it is there already, and an error if the one that is
// there is of a later run: what was found last counts, and whoever has an old report must not take that back.
func Put(plugin *clusterv1.PluginRecord, report *clusterv1.ConformanceReport) (bool, error) {
	n, there := slices.BinarySearchFunc(plugin.GetReports(), report.GetDigest(), func(r *clusterv1.ConformanceReport, digest string) int { return cmp.Compare(r.GetDigest(), digest) })
	if !there {
		plugin.Reports = slices.Insert(plugin.GetReports(), n, report)
		return true, nil
	}
	had := plugin.GetReports()[n]
	if bytes.Equal(had.GetSha256(), report.GetSha256()) {
		return false, nil
	}
	if had.GetStarted().AsTime().After(report.GetStarted().AsTime()) {
		return false, answer.Errorf(codes.FailedPrecondition, "the report is of a run that began at %s, and the catalog has one on this executable of a later run, from %s: test it again",
			report.GetStarted().AsTime().Format(time.RFC3339), had.GetStarted().AsTime().Format(time.RFC3339))
	}
	plugin.Reports[n] = report
	return true, nil
}

// Prune takes the reports out of a record that are on none of its executables.
func Prune(plugin *clusterv1.PluginRecord) {
	known := Digests(plugin)
	plugin.Reports = slices.DeleteFunc(plugin.GetReports(), func(report *clusterv1.ConformanceReport) bool { return !slices.Contains(known, report.GetDigest()) })
	if len(plugin.Reports) == 0 {
		plugin.Reports = nil
	}
}

// Digests are those of all executables of a record: that run, that wait, and that ran before.
func Digests(plugin *clusterv1.PluginRecord) []string {
	var all []string
	for _, digests := range []map[string]string{plugin.GetDigests(), plugin.GetWaiting().GetDigests(), plugin.GetPrevious().GetDigests()} {
		all = slices.AppendSeq(all, maps.Values(digests))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Answer is a record as it is given in an answer: with what the state says of who signed its reports.
func Answer(state *store.State, plugin *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	if len(plugin.GetReports()) == 0 {
		return plugin
	}
	shown := proto.CloneOf(plugin)
	for _, report := range shown.GetReports() {
		report.SignerGone = Gone(state, report)
	}
	return shown
}

// NotOf is the error for a report on another executable than it is given for.
func NotOf(field, digest string, wanted map[string]string) error {
	var platforms []string
	for _, platform := range slices.Sorted(maps.Keys(wanted)) {
		platforms = append(platforms, fmt.Sprintf("%s for %s", wanted[platform], platform))
	}
	return answer.Errorf(codes.InvalidArgument, "%s: the report is on the executable %s, and this is about %s: test that one (`reeve plugin test FILE --report REPORT`)",
		field, digest, strings.Join(platforms, ", "))
}
