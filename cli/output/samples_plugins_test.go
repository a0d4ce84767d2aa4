package output_test

import (
	"time"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// sampleVersion asks for everything that there is.
func sampleVersion() *output.PluginVersion {
	asks := []*rolev1.Grant{
		{Name: "listen", Parameters: map[string]string{"port": "7443"}}, {Name: "connect", Parameters: map[string]string{"port": "any"}},
		{Name: "read-path", Parameters: map[string]string{"path": "/srv"}}, {Name: "write-path", Parameters: map[string]string{"path": "/srv/a"}},
		{Name: "execute-path", Parameters: map[string]string{"path": "/usr/bin/x"}}, {Name: "replace-file", Parameters: map[string]string{"path": "/etc/hosts"}},
		{Name: "set-hostname"}, {Name: "set-hostname", Parameters: map[string]string{"path": "/etc/hostname"}},
		{Name: "set-machine-id", Parameters: map[string]string{"path": "/etc/machine-id"}}, {Name: "capability", Parameters: map[string]string{"name": "net-bind-service"}},
		{Name: "limit", Parameters: map[string]string{"memory": "64Mi", "processes": "8", "open-files": "100", "cpu-weight": "50", "store-bytes": "1Gi", "store-leases": "5"}},
		{Name: "privileged"}, {Name: "from-the-future", Parameters: map[string]string{"a": "b\x1b[2J"}},
	}
	return &output.PluginVersion{
		PluginVersion: &clusterv1.PluginVersion{Version: "0.2.0", Digests: map[string]string{"linux/amd64": "sha256:1f1f"}, Added: stamp(2 * time.Minute)},
		Roles:         []string{"hostsfile", "idle"},
		Asks:          []*clusterv1.RoleGrants{{Role: "hostsfile", ConsensusUser: "hosts", Grants: asks}}, New: []*clusterv1.RoleGrants{{Role: "hostsfile", ConsensusUser: "hosts", Grants: asks}},
	}
}

// sampleWaiting is a plugin of which another version waits.
func sampleWaiting() output.Plugin {
	plugin := samplePlugin()
	plugin.Genesis, plugin.Waiting = true, sampleVersion()
	plugin.Reports = append(plugin.Reports, samplePluginReport("sha256:f0f0", "failed"))
	plugin.Previous = &output.PluginVersion{
		PluginVersion: &clusterv1.PluginVersion{Version: "0.0.9", Digests: map[string]string{"linux/amd64": "sha256:2f2f"}}, Roles: []string{"hostsfile"}, Asks: []*clusterv1.RoleGrants{}, New: []*clusterv1.RoleGrants{},
	}
	plugin.Roles[0].Withheld = &clusterv1.RoleGrants{Role: "hostsfile", ConsensusUser: "hosts", Grants: sampleVersion().Asks[0].Grants[6:7]}
	return plugin
}

func samplePlugin() output.Plugin {
	return output.Plugin{
		PluginRecord: &clusterv1.PluginRecord{
			Name: "hostsfile", Version: "0.1.0", Digests: map[string]string{"linux/amd64": "sha256:0f0f", "linux/arm64": "sha256:f0f0"}, Generation: 2, Added: stamp(time.Hour),
		},
		Reports: []*clusterv1.ConformanceReport{samplePluginReport("sha256:0f0f", "passed")},
		Roles: []output.PluginRole{
			{
				Role: "hostsfile", Tier: "granted", ConsensusUser: "hosts",
				RoleShape: output.RoleShape{
					Summary: "Keeps the hosts file", Requires: []string{"reeve.cluster.v1"}, Provides: []string{"example.v1"}, GivesUp: []string{"processes"}, InSplit: "continue",
					StartsFromCache: true, StopGraceSeconds: 120,
				},
				Grants:   []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": "/etc/hosts"}}},
				Withheld: &clusterv1.RoleGrants{Role: "hostsfile", Grants: []*rolev1.Grant{}},
			},
			{
				Role: "idle", Tier: "confined", RoleShape: output.RoleShape{Requires: []string{}, Provides: []string{}, GivesUp: []string{}, InSplit: "told", EndsWithCore: true, StopGraceSeconds: 10},
				Grants: []*rolev1.Grant{}, Withheld: &clusterv1.RoleGrants{Role: "idle", Grants: []*rolev1.Grant{}},
			},
		},
	}
}
