package management

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/reports"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// AddPluginReport implements clusterv1.ManagementServiceServer.
func (s *Service) AddPluginReport(ctx context.Context, request *clusterv1.AddPluginReportRequest) (*clusterv1.AddPluginReportResponse, error) {
	problems := append(rules.PluginName("plugin", request.GetPlugin()), rules.Digest("digest", request.GetDigest())...)
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	plugin, err := s.changePlugin(ctx, request.GetDryRun(), request.GetPlugin(), func(state *store.State, before *clusterv1.PluginRecord) (*proposal, error) {
		if before == nil {
			return nil, noPlugin(state, request.GetPlugin())
		}
		platforms := executable(before, request.GetDigest())
		if len(platforms) == 0 {
			return nil, unknownExecutable(before, request.GetDigest())
		}
		proposed := &proposal{record: proto.CloneOf(before)}
		return proposed, s.report(state, proposed, "report", platforms, request.GetReport())
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "plugin report added", "plugin", plugin.GetName(), "digest", request.GetDigest(), "generation", plugin.GetGeneration())
	return &clusterv1.AddPluginReportResponse{Plugin: plugin}, nil
}

// GetPluginReport implements clusterv1.ManagementServiceServer.
func (s *Service) GetPluginReport(ctx context.Context, request *clusterv1.GetPluginReportRequest) (*clusterv1.GetPluginReportResponse, error) {
	problems := append(rules.PluginName("plugin", request.GetPlugin()), rules.Digest("digest", request.GetDigest())...)
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	envelope, err := s.config.Store.ReadReport(ctx, request.GetPlugin(), request.GetDigest())
	if err != nil {
		return nil, err
	}
	if envelope == nil {
		return nil, answer.Errorf(codes.NotFound, "the catalog has no report on the executable %s of plugin %s: `reeve plugin show %s` lists those that there are",
			request.GetDigest(), request.GetPlugin(), request.GetPlugin())
	}
	return &clusterv1.GetPluginReportResponse{Report: envelope}, nil
}

// report takes a signed report into a proposal, if it is on one of some executables, which are by platform. field is where it is in the request.
func (s *Service) report(state *store.State, proposed *proposal, field string, wanted map[string]string, envelope []byte) error {
	report, err := reports.Take(state, envelope, s.config.Now())
	if err != nil {
		return err
	}
	if !slices.Contains(slices.Collect(maps.Values(wanted)), report.GetDigest()) {
		return reports.NotOf(field, report.GetDigest(), wanted)
	}
	if slices.ContainsFunc(proposed.reports, func(other store.Report) bool { return other.Digest == report.GetDigest() }) {
		return answer.Errorf(codes.InvalidArgument, "%s: there is another report on %s in the request: give the newer one", field, report.GetDigest())
	}
	fresh, err := reports.Put(proposed.record, report)
	if fresh {
		proposed.reports = append(proposed.reports, store.Report{Plugin: proposed.record.GetName(), Digest: report.GetDigest(), Envelope: envelope})
	}
	return err
}

// executable returns the platforms of a record's versions that have a digest.
func executable(plugin *clusterv1.PluginRecord, digest string) map[string]string {
	found := make(map[string]string)
	for _, digests := range []map[string]string{plugin.GetDigests(), plugin.GetWaiting().GetDigests(), plugin.GetPrevious().GetDigests()} {
		for platform, of := range digests {
			if of == digest {
				found[platform] = of
			}
		}
	}
	return found
}

func unknownExecutable(plugin *clusterv1.PluginRecord, digest string) error {
	return answer.Errorf(codes.NotFound, "the catalog has no executable %s of plugin %s: `reeve plugin show %s` lists those that there are, `reeve plugin add FILE --report REPORT` adds another one",
		digest, plugin.GetName(), plugin.GetName())
}

// proven returns why a change is not made where the policy demands reports of the conformance suite: it brings in executables that have none which says that they conform.
func proven(before, after *store.State) error {
	found := rules.IntroducedUnproven(before, after)
	if len(found) == 0 {
		return nil
	}
	var texts []string
	for _, one := range found {
		texts = append(texts, one.String())
	}
	return answer.Errorf(codes.FailedPrecondition, "the cluster's policy demands a report of the conformance suite which says that an executable conforms (conformance: required), and %s; "+
		"test each of them (`reeve plugin test FILE --report REPORT`), and give the report with the plugin (`reeve plugin add FILE --report REPORT`) or for one that is in the catalog "+
		"(`reeve plugin report add REPORT`)", few(texts))
}
