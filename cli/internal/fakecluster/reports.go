package fakecluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// report takes a signed report into the record of a plugin. The owner key must have signed it.
func (m *management) report(record *clusterv1.PluginRecord, envelope []byte) error {
	signed, err := attest.Open(envelope)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if !bytes.Equal(signed.Key, m.cluster.owner) {
		return status.Errorf(codes.FailedPrecondition, "nobody in the cluster has the key %s", attest.KeyID(signed.Key))
	}
	found, err := signed.Verify(signed.Key)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	result := clusterv1.ConformanceResult_CONFORMANCE_RESULT_FAILED
	if found.Result() == attest.Passed {
		result = clusterv1.ConformanceResult_CONFORMANCE_RESULT_PASSED
	}
	sum := sha256.Sum256(envelope)
	report := &clusterv1.ConformanceReport{
		Digest: found.Digest, Result: result, SuiteVersion: found.SuiteVersion, Started: timestamppb.New(found.Started), Added: timestamppb.New(m.cluster.clock),
		Signer: "owner", SignerKey: signed.Key, Sha256: sum[:], Passed: uint32(found.Count(attest.Pass)), Failed: uint32(found.Count(attest.Fail)),
	}
	for _, profile := range found.Profiles {
		report.Profiles = append(report.Profiles, &clusterv1.ConformanceProfile{Profile: profile.Profile, Verdict: profile.Verdict})
	}
	record.Reports = append(slices.DeleteFunc(record.GetReports(), func(other *clusterv1.ConformanceReport) bool { return other.GetDigest() == found.Digest }), report)
	if m.cluster.reports == nil {
		m.cluster.reports = make(map[string][]byte)
	}
	m.cluster.reports[found.Digest] = envelope
	return nil
}

func (m *management) AddPluginReport(_ context.Context, request *clusterv1.AddPluginReportRequest) (*clusterv1.AddPluginReportResponse, error) {
	after, err := m.changePlugin(request.GetPlugin(), request.GetDryRun(), func(record *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
		return record, m.report(record, request.GetReport())
	})
	return &clusterv1.AddPluginReportResponse{Plugin: after}, err
}

func (m *management) GetPluginReport(_ context.Context, request *clusterv1.GetPluginReportRequest) (*clusterv1.GetPluginReportResponse, error) {
	return &clusterv1.GetPluginReportResponse{Report: m.cluster.reports[request.GetDigest()]}, nil
}
