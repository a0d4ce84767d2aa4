package store

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/server/v3/features"
)

// TestChecksOfEtcdAreOff holds that none of etcd's own checks for corruption is on, whatever etcd's defaults become: what they find is an alarm by which every member refuses everything, so one bad disk
// would stop the cluster. Members are compared by rules of their own instead (docs/decisions/0095-damaged-members.md).
func TestChecksOfEtcdAreOff(t *testing.T) {
	config := Config{Directory: t.TempDir(), RuntimeDirectory: t.TempDir(), Log: hclog.NewNullLogger()}
	settings, err := settings(config, Plan{NodeID: "reeve-1", ClusterID: "c-0123", ClusterUser: "cluster"}, beginning{make: true})
	if err != nil {
		t.Fatal(err)
	}
	if settings.CorruptCheckTime != 0 {
		t.Errorf("members are compared by etcd every %s", settings.CorruptCheckTime)
	}
	if settings.ServerFeatureGate.Enabled(features.InitialCorruptCheck) {
		t.Error("members are compared by etcd when they start")
	}
	if settings.ServerFeatureGate.Enabled(features.CompactHashCheck) {
		t.Error("members are compared by etcd after compactions")
	}
}
