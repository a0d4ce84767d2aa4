package store

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Report is a signed report of the conformance suite on an executable of a plugin, as it was given.
type Report struct {
	Plugin, Digest string
	Envelope       []byte
}

// ReadReport reads the signed report on an executable of a plugin; nil: there is none.
func (s *Store) ReadReport(ctx context.Context, plugin, digest string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	response, err := readAgain(bounded, s.client, clientv3.OpGet(reportKey(plugin, digest)))
	if err != nil {
		return nil, s.failed(ctx, "read a report of the conformance suite", err)
	}
	if kvs := response.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0].Value, nil
	}
	return nil, nil
}

// writeReports keeps the signed reports that are new, and removes those of which no record tells any more.
func (c *Change) writeReports(before *State, writes *transaction) {
	for _, plugin := range c.Plugins {
		removeReports(before.Plugins[plugin.GetName()], plugin.GetReports(), writes)
	}
	for _, name := range c.RemovedPlugins {
		removeReports(before.Plugins[name], nil, writes)
	}
	for _, report := range c.Reports {
		writes.putText(reportKey(report.Plugin, report.Digest), string(report.Envelope))
	}
}

func removeReports(before *clusterv1.PluginRecord, kept []*clusterv1.ConformanceReport, writes *transaction) {
	for _, report := range before.GetReports() {
		if !slices.ContainsFunc(kept, func(other *clusterv1.ConformanceReport) bool { return other.GetDigest() == report.GetDigest() }) {
			writes.delete(reportKey(before.GetName(), report.GetDigest()))
		}
	}
}
