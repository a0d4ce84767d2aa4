package output_test

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

var sampleNow = time.Date(2026, 1, 2, 3, 6, 5, 0, time.UTC)

func stamp(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(*at(ago)) }

func at(ago time.Duration) *time.Time {
	t := sampleNow.Add(-ago)
	return &t
}

const (
	sampleNode = "reeve-00112233445566778899aabbccddeeff"
	otherNode  = "reeve-ffeeddccbbaa99887766554433221100"
)

// samples are documents of every kind, by the name of their golden files: with everything in them, and with nothing.
func samples() map[string]output.Document {
	return map[string]output.Document{
		"status": *sampleStatus(),
		"status-locked": output.Status{
			Node:       output.NodeSelf{ID: sampleNode, Addresses: []string{}, Missing: []*clusterv1.Missing{}, LackingCapabilities: []string{"CAP_SYS_PTRACE", "CAP_SYS_ADMIN"}, Isolation: "own-uid", Volume: "luks", Version: "0.2.0"},
			Membership: &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN, Reason: "the volume is locked"}, Cluster: output.Cluster{ID: "5f0c", Curators: []string{}}, Roles: []*clusterv1.InstanceStatus{},
			Storage: sampleLocked(),
		},
		"status-sealed": output.Status{
			Node: output.NodeSelf{ID: sampleNode, Addresses: []string{}, Missing: []*clusterv1.Missing{}, Volume: "fscrypt"}, Membership: &hostv1.Membership{},
			Roles: []*clusterv1.InstanceStatus{}, Cluster: output.Cluster{Curators: []string{}},
			Storage: &clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_SEALED, Kind: "fscrypt", Encrypted: true, Sealer: "file", Sources: []*clusterv1.CukSource{}, Weaknesses: []string{}, Recoverable: true},
		},
		"status-open": output.Status{
			Node: output.NodeSelf{ID: sampleNode, Addresses: []string{}, Missing: []*clusterv1.Missing{}, Volume: "fscrypt"}, Membership: &hostv1.Membership{}, Cluster: output.Cluster{Curators: []string{}},
			Roles: []*clusterv1.InstanceStatus{readyRole()},
			Storage: &clusterv1.StorageStatus{
				State: clusterv1.StorageState_STORAGE_STATE_OPEN, Kind: "fscrypt", Encrypted: true, Location: "/var/lib/reeve/system/volume.img", Sealer: "file",
				Sources:    []*clusterv1.CukSource{{Name: "recovery", State: clusterv1.CukSourceState_CUK_SOURCE_STATE_USED, Reason: "the owner has unlocked the node"}},
				Weaknesses: []string{"The node's secrets are protected by the permissions of a file only."}, Recoverable: true,
			},
		},
		"snapshot":              sampleSnapshot("age1x", "", ""),
		"snapshot-inspected":    sampleSnapshot("age1x", "context prod", "file"),
		"snapshots":             output.NewSnapshots(sampleSnapshots()),
		"snapshots-none":        output.NewSnapshots(&clusterv1.ListSnapshotsResponse{}),
		"snapshot-rehearsed":    sampleRehearsed(),
		"snapshot-opened":       sampleSnapshot("", "", "database"),
		"node-unlocked":         output.NodeUnlocked{NodeID: sampleNode, Recipient: "age1x", Notes: []string{"The TPM does not give the secrets back: run `reeve node reseal`."}},
		"node-unlocked-dry":     output.NodeUnlocked{NodeID: sampleNode, DryRun: true, Recipient: "age1x", Notes: []string{}},
		"node-unlocked-already": output.NodeUnlocked{NodeID: sampleNode, WasOpen: true, Notes: []string{}},
		"node-sealed":           output.NodeSealed{NodeID: sampleNode, Roles: []string{"consensus", "curator"}},
		"node-sealed-dry":       output.NodeSealed{NodeID: sampleNode, DryRun: true, Roles: []string{"consensus", "curator"}},
		"keys-rotated":          output.KeysRotated{NodeID: sampleNode, Keys: []string{"nuk", "cuk"}, Recipient: "age1x"},
		"keys-rotated-dry":      output.KeysRotated{NodeID: sampleNode, DryRun: true, Keys: []string{"data-key"}},
		"resealed":              output.Resealed{NodeID: sampleNode, PCRs: []uint32{7}, Expected: map[string]string{}},
		"resealed-dry":          output.Resealed{NodeID: sampleNode, DryRun: true, PCRs: []uint32{4, 7}, Expected: map[string]string{"7": "00ff"}},
		"resealed-file":         output.Resealed{NodeID: sampleNode, PCRs: []uint32{}, Expected: map[string]string{}},
		"peers":                 output.Peers{NodeID: sampleNode, Peers: []string{"192.0.2.21", "node-3.example.com"}},
		"peers-dry":             output.Peers{NodeID: sampleNode, DryRun: true, Peers: []string{}},
		"recovery-key":          output.RecoveryKey{File: "recovery.key", Recipient: "age1x"},
		"recovery-key-text":     output.RecoveryKey{Recipient: "age1x", Text: "# public key: age1x\nAGE-SECRET-KEY-1X\n"},
		"status-empty":          output.Status{Node: output.NodeSelf{Addresses: []string{}, Missing: []*clusterv1.Missing{}}, Membership: &hostv1.Membership{}, Cluster: output.Cluster{Curators: []string{}}, Roles: []*clusterv1.InstanceStatus{}},
		"nodes":                 output.NewNodes([]output.Node{sampleClusterNode()}),
		"roles": output.Roles{NodeID: sampleNode, Roles: []output.NodeRole{
			{Role: "hostsfile", Assigned: true, Generation: 3, Instance: failedRole()},
			{Role: "lighthouse", Assigned: true, Generation: 4},
		}},
		"role-added": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "add", Generation: 4, Waited: true, Instance: readyRole(), Required: []string{}},
		"role-added-unwaited": output.RoleChange{
			NodeID: sampleNode, Role: "lighthouse", Action: "add", Generation: 4, Required: []string{"consensus", "beacon"},
		},
		"role-added-dry-required": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "add", DryRun: true, Generation: 4, Required: []string{"beacon"}},
		"role-added-dry":          output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "add", DryRun: true, Generation: 4, Required: []string{}},
		"role-added-dry-configuration": output.RoleChange{
			NodeID: sampleNode, Role: "lighthouse", Action: "add", DryRun: true, Generation: 4, Required: []string{},
			Configuration: []redact.Change{{Path: "/path", Before: "<string, 10 bytes>", After: "<string, 12 bytes>"}, {Path: "/new", After: "<bool>"}},
		},
		"role-removed":            output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "remove", Waited: true, Required: []string{}},
		"role-removed-dry":        output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "remove", DryRun: true, Required: []string{}},
		"role-restarted-unwaited": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "restart", FormerInstance: sampleNode + "/lighthouse/1", Required: []string{}},
		"role-restarted-dry": output.RoleChange{
			NodeID: sampleNode, Role: "lighthouse", Action: "restart", DryRun: true, FormerInstance: sampleNode + "/lighthouse/1", Required: []string{},
		},
		"role-debugged-unwaited": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "debug", FormerInstance: sampleNode + "/lighthouse/1", Required: []string{}},
		"role-debugged-dry": output.RoleChange{
			NodeID: sampleNode, Role: "lighthouse", Action: "debug", DryRun: true, FormerInstance: sampleNode + "/lighthouse/1", Required: []string{},
		},
		"role-started-dry": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "restart", DryRun: true, Required: []string{}},
		"conformance":      sampleConformance(),
		"conformance-empty": output.Conformance{
			Executable: "./nothing", Platform: "linux/amd64", Processors: 2, Results: []output.CheckResult{}, Figures: []output.Figure{}, Blocked: []output.BlockedRole{}, Verdicts: []output.ProfileVerdict{},
		},
		"report":           sampleReport(),
		"report-added":     output.ReportAdded{ConformanceReport: samplePluginReport("sha256:0f0f", "passed"), Plugin: "hello"},
		"report-added-dry": output.ReportAdded{ConformanceReport: samplePluginReport("sha256:0f0f", "failed"), Plugin: "hello", DryRun: true},
		"report-verified":  output.ReportVerified{Report: sampleReport(), Signer: "owner"},
		"report-verified-key": output.ReportVerified{Report: output.Report{
			Result: "passed", SignedBy: "AAAA", Configurations: map[string]string{}, Reproduce: []string{}, Checks: []output.ReportCheck{}, Verdicts: []output.ProfileVerdict{},
		}},
		"plugin-new":       output.NewModule{Plugin: "hello", Directory: "plugins/hello", Files: []string{".gitignore", "go.mod", "main.go"}},
		"plugins":          output.Plugins{Plugins: []output.Plugin{samplePlugin()}},
		"plugin-added":     output.PluginChange{Plugin: samplePlugin(), Action: "add", Nodes: []string{}},
		"plugin-added-dry": output.PluginChange{Plugin: samplePlugin(), Action: "add", DryRun: true, Nodes: []string{}},
		"plugin-waits":     output.PluginChange{Plugin: sampleWaiting(), Action: "add", Waits: true, Nodes: []string{}},
		"plugin-waits-dry": output.PluginChange{
			Plugin: output.Plugin{PluginRecord: &clusterv1.PluginRecord{Name: "new"}, Roles: []output.PluginRole{}, Waiting: sampleVersion(), Reports: []*clusterv1.ConformanceReport{}}, Action: "add", DryRun: true, Waits: true, Nodes: []string{},
		},
		"plugin-granted":     output.PluginChange{Plugin: sampleWaiting(), Action: "grant", Nodes: []string{}},
		"plugin-removed":     output.PluginChange{Plugin: samplePlugin(), Action: "remove", Nodes: []string{sampleNode}, Wiped: true},
		"plugin-removed-dry": output.PluginChange{Plugin: samplePlugin(), Action: "remove", DryRun: true, Nodes: []string{sampleNode}},
		"plugin-shown": output.PluginShown{Plugin: sampleWaiting(), Nodes: []output.PluginNode{
			{NodeID: sampleNode, Role: "hostsfile", State: "Ready", Version: "0.0.9", RolledBack: sampleRolledBack()}, {NodeID: otherNode, Role: "hostsfile"},
		}},
		"plugin-shown-new": output.PluginShown{
			Plugin: output.Plugin{PluginRecord: &clusterv1.PluginRecord{Name: "new"}, Roles: []output.PluginRole{}, Waiting: sampleVersion(), Reports: []*clusterv1.ConformanceReport{}}, Nodes: []output.PluginNode{},
		},
		"plugin-diff": output.PluginDiff{Name: "hostsfile", Before: sampleVersion(), After: *sampleVersion(), Changes: []output.PluginDetail{
			{What: "version", Before: "0.1.0", After: "0.2.0"}, {Role: "hostsfile", What: "grant", After: "listen port=7443"},
		}},
		"plugin-diff-less": output.PluginDiff{
			Name: "hostsfile", File: "f", After: output.PluginVersion{PluginVersion: &clusterv1.PluginVersion{Version: "0.3.0"}, Roles: []string{}, Asks: []*clusterv1.RoleGrants{}, New: []*clusterv1.RoleGrants{}},
			Changes: []output.PluginDetail{{Role: "hostsfile", What: "grant", Before: "listen port=7443"}},
		},
		"plugin-diff-same": output.PluginDiff{Name: "hostsfile", After: *sampleVersion(), Same: true, Changes: []output.PluginDetail{}},
		"role-shown": output.RoleShown{NodeID: sampleNode, Role: "lighthouse", GetRoleResponse: &nodev1.GetRoleResponse{
			Status: readyRole(), Grants: sampleVersion().Asks[0], Sandbox: sampleSandbox(), StopGrace: durationpb.New(10 * time.Second),
			Usage: &consensusv1.UserUsage{ConsensusUser: "lighthouse", Bytes: 64 << 20, BytesQuota: 256 << 20, Leases: 3, LeasesQuota: 1000, Refused: 2},
		}},
		"role-shown-blocked": output.NewRoleShown(sampleNode, "hostsfile", &nodev1.GetRoleResponse{
			Status: failedRole(), Usage: &consensusv1.UserUsage{ConsensusUser: "hosts", Bytes: 5}, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP,
			StartsFromCache: true, EndsWithCore: true, StopGrace: durationpb.New(150 * time.Second),
		}),
		"role-shown-privileged": output.RoleShown{NodeID: sampleNode, Role: "lighthouse", GetRoleResponse: &nodev1.GetRoleResponse{
			Status: readyRole(), InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE, StopGrace: durationpb.New(0),
			Grants: &clusterv1.RoleGrants{Role: "lighthouse", Grants: []*rolev1.Grant{{Name: "privileged"}}},
			Sandbox: &nodev1.Sandbox{
				Tier: clusterv1.Tier_TIER_PRIVILEGED, Capabilities: []string{}, DeniedSystemCalls: []string{}, Reads: []string{}, Writes: []string{}, Executes: []string{}, Listens: []string{"any"},
				Connects: []string{"any"}, ControlGroups: []string{}, Missing: []*clusterv1.Missing{},
			},
		}},
		"nodes-many":              sampleNodes(),
		"tickets":                 output.Tickets{Tickets: []*clusterv1.Ticket{sampleTicket(), {Id: "00", Expires: stamp(time.Second), Uses: 1, Roles: []string{}, Labels: map[string]string{}, AutoApprove: true}, {Id: "0123456789abcdef", Roles: []string{}, Labels: map[string]string{}, Problem: "record \"tickets/0123456789abcdef\": it has no end"}}},
		"tickets-empty":           output.Tickets{Tickets: []*clusterv1.Ticket{}},
		"ticket-made":             output.TicketMade{Ticket: sampleTicket(), Text: "reeve1.AAAA"},
		"ticket-made-file":        output.TicketMade{Ticket: sampleTicket(), File: "ticket"},
		"ticket-made-dry":         output.TicketMade{Ticket: &clusterv1.Ticket{Uses: 1, Expires: stamp(-time.Hour), Roles: []string{}, Labels: map[string]string{}, AutoApprove: true}, DryRun: true},
		"ticket-revoked":          output.TicketRevoked{Ticket: sampleTicket()},
		"ticket-revoked-dry":      output.TicketRevoked{Ticket: sampleTicket(), DryRun: true},
		"node-approved":           sampleChange("approve", "Standby", false),
		"node-approved-dry":       sampleChange("approve", "Standby", true),
		"node-approved-bare":      output.NodeChange{NodeID: sampleNode, Action: "approve", State: "Standby", Roles: []string{}, Labels: map[string]string{}, Bypassed: []string{}},
		"node-accepted":           sampleChange("accept", "Up", false),
		"node-accepted-dry":       sampleChange("accept", "Up", true),
		"node-labelled":           sampleChange("label", "Up", false),
		"node-labelled-dry":       sampleChange("label", "Up", true),
		"node-drained":            sampleChange("drain", "Up", false),
		"node-drained-dry":        sampleChange("drain", "Up", true),
		"node-undrained":          sampleChange("undrain", "Up", false),
		"node-undrained-dry":      sampleChange("undrain", "Up", true),
		"node-decommissioning":    sampleChange("decommission", "Decommissioning", false),
		"node-decommissioned":     sampleChange("decommission", "Decommissioned", false),
		"node-decommissioned-dry": sampleChange("decommission", "Decommissioning", true),
		"node-deleted": output.NodeChange{
			NodeID: sampleNode, Action: "delete", State: "Decommissioned", Roles: []string{}, Labels: map[string]string{}, Bypassed: []string{"that it lives\x1b[2J"},
		},
		"node-deleted-dry": sampleChange("delete", "Decommissioned", true),
		"certificates": output.Certificates{ListCertificatesResponse: &clusterv1.ListCertificatesResponse{Phase: clusterv1.CAPhase_CA_PHASE_PREPARED, Certificates: []*clusterv1.Certificate{
			{Kind: clusterv1.CertificateKind_CERTIFICATE_KIND_NODE, Subject: "spiffe://5f0c.reeve/node/" + sampleNode, NodeId: sampleNode, NotBefore: stamp(time.Hour), NotAfter: stamp(-time.Hour), Fingerprint: "00ff", Use: "in use"},
			{Kind: clusterv1.CertificateKind_CERTIFICATE_KIND_ROLE, Subject: "spiffe://5f0c.reeve/node/" + sampleNode + "/role/consensus", NodeId: sampleNode, NotBefore: stamp(time.Hour), NotAfter: stamp(time.Second), Fingerprint: "01ff"},
			{Kind: clusterv1.CertificateKind_CERTIFICATE_KIND_CA, Subject: "CN=reeve", NotBefore: stamp(time.Hour), NotAfter: stamp(-99 * 24 * time.Hour), Fingerprint: "02ff", Use: "signs"},
		}}},
		"certificates-empty":  output.Certificates{ListCertificatesResponse: &clusterv1.ListCertificatesResponse{Phase: clusterv1.CAPhase_CA_PHASE_STEADY, Certificates: []*clusterv1.Certificate{}}},
		"certificates-active": output.Certificates{ListCertificatesResponse: &clusterv1.ListCertificatesResponse{Phase: clusterv1.CAPhase_CA_PHASE_ACTIVE, StoreCaStep: "the members of " + sampleNode + "\x1b[2J are waited for", Certificates: []*clusterv1.Certificate{}}},
		"ca-prepared":         output.CARotation{Rotation: output.Rotation{Step: "prepare", Phase: "prepared", Waiting: []string{sampleNode + ": it does not know the new CA"}}},
		"ca-activated":        output.CARotation{Rotation: output.Rotation{Step: "activate", Forced: true, Phase: "active", Waiting: []string{}}},
		"ca-retired":          output.CARotation{Rotation: output.Rotation{Step: "retire", Phase: "steady", Waiting: []string{}}},
		"ca-prepared-dry":     output.CARotation{Rotation: output.Rotation{Step: "prepare", DryRun: true, Phase: "prepared", Waiting: []string{}}},
		"kubernetes-pki":      output.KubernetesPKI{GetRotationResponse: &kubernetesv1.GetRotationResponse{Phase: kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY, Next: kubernetesv1.RotationStep_ROTATION_STEP_PREPARE, Waiting: []string{}, Keys: []*kubernetesv1.SigningKey{{Kind: kubernetesv1.KeyKind_KEY_KIND_SERVERS, Fingerprint: "00ff", Signs: true}}}},
		"kubernetes-pki-prepared": output.KubernetesPKI{GetRotationResponse: &kubernetesv1.GetRotationResponse{Phase: kubernetesv1.RotationPhase_ROTATION_PHASE_PREPARED, Since: stamp(time.Hour), Next: kubernetesv1.RotationStep_ROTATION_STEP_ACTIVATE, Waiting: []string{"kubernetes-worker of node " + sampleNode + "\x1b[2J"}, Keys: []*kubernetesv1.SigningKey{
			{Kind: kubernetesv1.KeyKind_KEY_KIND_SERVERS, Fingerprint: "00ff", Signs: true}, {Kind: kubernetesv1.KeyKind_KEY_KIND_SERVERS, Fingerprint: "01ff"},
		}}},
		"kubernetes-pki-active":   output.KubernetesPKI{GetRotationResponse: &kubernetesv1.GetRotationResponse{Phase: kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE, Since: stamp(time.Minute), Next: kubernetesv1.RotationStep_ROTATION_STEP_RETIRE, Waiting: []string{}, Keys: []*kubernetesv1.SigningKey{}}},
		"kubernetes-prepared":     output.KubernetesRotation{Rotation: output.Rotation{Step: "prepare", Phase: "prepared", Waiting: []string{"kubernetes-worker of node " + sampleNode}}},
		"kubernetes-prepared-dry": output.KubernetesRotation{Rotation: output.Rotation{Step: "prepare", DryRun: true, Phase: "prepared", Waiting: []string{}}},
		"kubernetes-activated":    output.KubernetesRotation{Rotation: output.Rotation{Step: "activate", Forced: true, Phase: "active", Waiting: []string{}}},
		"kubernetes-retired":      output.KubernetesRotation{Rotation: output.Rotation{Step: "retire", Phase: "steady", Waiting: []string{}}},
		"dev-status": output.DevStatus{Directory: "/d", Nodes: []output.DevNode{
			{Number: 1, Directory: "/d", PID: 4711, Address: "127.0.0.1", Status: sampleStatus()}, {Number: 2, Directory: "/d/nodes/2", Address: "127.0.0.2"},
		}},
		"dev-status-netns": output.DevStatus{Directory: "/d", Nodes: []output.DevNode{
			{Number: 1, Directory: "/d", Namespace: "reeve-0a1b2c-1", Address: "10.20.30.1"}, {Number: 2, Directory: "/d/nodes/2", Namespace: "reeve-0a1b2c-2", Address: "10.20.30.2"},
		}},
		"dev-down-nodes": output.Down{Directory: "/d", Stopped: 4711, Roles: []string{"consensus"}, Nodes: []output.Down{{Directory: "/d/nodes/2", Roles: []string{}, Nodes: []output.Down{}}}},
		"node-description-registered": output.NodeDescription{ID: otherNode, Cluster: new(sampleNodes().Nodes[1]), Events: []*nodev1.Event{}, Missing: []output.Missing{
			{What: "what the node says of itself", Reason: "it serves nothing"},
		}},
		"policy": output.Policy{ClusterPolicy: &clusterv1.ClusterPolicy{}, Nodes: []output.PolicyNode{}},
		"policy-set": output.PolicyChange{Policy: output.Policy{ClusterPolicy: &clusterv1.ClusterPolicy{
			Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED, Conformance: clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED, Generation: 2, CukSources: []string{"recovery"},
		}, Nodes: []output.PolicyNode{{NodeID: sampleNode, Missing: []string{"cgroup-memory", "own-uid"}}}}, DryRun: true},
		"role-removed-wiped": output.RoleChange{NodeID: sampleNode, Role: "lighthouse", Action: "remove", Waited: true, Wiped: true, Required: []string{}},
		"events":             output.Events{NodeID: sampleNode, Events: sampleEvents()},
		"events-empty":       output.Events{NodeID: sampleNode, Events: []*nodev1.Event{}},
		"event":              output.Event{Event: sampleEvents()[1]},
		"log-line":           output.LogLine{Line: "hello\x1b[2J <world>"},
		"log-record":         output.NewLogLine(`{"@level":"warn","@message":"cannot reach\u001b[2J it","@module":"store","@timestamp":"2026-11-28T15:00:00.123456+01:00","address":"10.0.0.1","error":"no route: \"x\"","n":{"a": 1},"empty":""}`),
		"metrics":            output.Metrics{NodeID: sampleNode, Text: "# TYPE up gauge\nup 1\n"},
		"store":              output.NodeStore{NodeID: sampleNode, Store: sampleStore()},
		"store-full": output.NodeStore{NodeID: sampleNode, Store: &consensusv1.StoreStatus{
			ClusterId: "5f0c", Formed: true, MemberId: "8e9e", Members: []*consensusv1.StoreMember{{Id: "8e9e", Learner: true}},
			DatabaseSize: 512, Problem: "the database is full: run `reeve store recover`",
		}},
		"recovery": output.Recovery{NodeID: sampleNode, SizeBefore: 64 << 20, SizeAfter: 3 << 20},
		"survivors": output.Survivors{ClusterID: "5f0c", RecoveryID: "000102030405060708090a0b0c0d0e0f", Chosen: sampleNode, Lost: []string{"reeve-lost"}, Survivors: []output.Survivor{
			output.NewSurvivor(sampleNode, "192.0.2.7:7443", &consensusv1.MemberState{
				MemberId: "8e9e05c52164694d", Voter: true, Term: 7, CommittedIndex: 4711, LastTerm: 7, LastIndex: 4713, Revision: 4000, Generation: 1_764_357_600, GenerationId: []byte("0123456789abcdef"),
				Recovery: &consensusv1.QuorumRecovery{Id: "000102030405060708090a0b0c0d0e0f", Phase: consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED},
			}),
			output.NewSurvivor("reeve-second", "192.0.2.8:7443", &consensusv1.MemberState{MemberId: "91bc3c398fb3c146", Voter: true, Term: 7, CommittedIndex: 4700, LastTerm: 7, LastIndex: 4701, Damage: "it holds other data than that of reeve-lost"}),
			{NodeID: "reeve-third", Address: "192.0.2.9:7443", Problem: "connection refused", State: "not reached"},
		}},
		"survivors-recovered": output.Survivors{ClusterID: "5f0c", Chosen: sampleNode, Lost: []string{}, RecoveryID: "000102030405060708090a0b0c0d0e0f", Outcome: "recovered", Generation: 1_764_357_600, Seconds: 1.25},
		"survivors-abandoned": output.Survivors{ClusterID: "5f0c", Lost: []string{}, Outcome: "abandoned"},
		"recovery-dry":        output.Recovery{NodeID: sampleNode, DryRun: true, SizeBefore: 64 << 20, SizeAfter: 3 << 20},
		"replacement":         output.StoreReplacement{NodeID: sampleNode, FormerMember: "8e9e05c52164694d", Waited: true},
		"replacement-dry":     output.StoreReplacement{NodeID: sampleNode, DryRun: true, FormerMember: "8e9e05c52164694d"},
		"describe-node": output.NodeDescription{
			ID: sampleNode, Self: sampleStatus(), Cluster: ptr(sampleClusterNode()), Events: sampleEvents(), Missing: []output.Missing{},
		},
		"describe-node-missing": output.NodeDescription{
			ID: sampleNode, Cluster: ptr(sampleClusterNode()), Events: []*nodev1.Event{},
			Missing: []output.Missing{{What: "what the node says of itself", Reason: "connection refused"}},
		},
		"describe-role": output.RoleDescription{
			NodeID: sampleNode, Role: "hostsfile", Instance: failedRole(),
			Assignment: &clusterv1.RoleAssignment{Role: "hostsfile", Configuration: `{"path":"<string, 10 bytes>"}`, Generation: 3},
			Remit:      &sampleWaiting().Roles[0], Events: sampleEvents()[1:], Missing: []output.Missing{},
		},
		"describe-role-ready": output.RoleDescription{
			NodeID: sampleNode, Role: "lighthouse", Instance: readyRole(), Events: []*nodev1.Event{}, Missing: []output.Missing{{What: "the catalog", Reason: "no quorum"}},
		},
		"waited": output.Waited{
			NodeID: sampleNode, Conditions: []string{"healthy", "role/x=Gone"}, Seconds: 1.5, State: []string{"the node is healthy", "role x is gone"},
		},
		"version":             output.Version{Version: "1.2.3", Go: "go1.26.0", Platform: "linux/amd64"},
		"version-node":        output.Version{Version: "1.2.3", Go: "go1.26.0", Platform: "linux/amd64", Node: &output.NodeVersion{ID: sampleNode, Version: "1.2.2"}},
		"version-unreachable": output.Version{Version: "1.2.3", Go: "go1.26.0", Platform: "linux/amd64", Problem: "no node runs in d"},
		"down":                output.Down{Directory: "/d", Stopped: 4711, Roles: []string{"consensus", "curator"}},
		"down-reaped":         output.Down{Directory: "/d", Reaped: true, Roles: []string{}},
		"down-nothing":        output.Down{Directory: "/d", Roles: []string{}},
		"down-dry":            output.Down{Directory: "/d", DryRun: true, Stopped: 4711, Roles: []string{"consensus", "curator"}},
		"down-reaped-dry":     output.Down{Directory: "/d", DryRun: true, Reaped: true, Roles: []string{}},
		"down-nothing-dry":    output.Down{Directory: "/d", DryRun: true, Roles: []string{}},
		"image-load":          sampleImageLoad(),
		"image-load-dry": output.ImageLoad{File: "-", DryRun: true, Nodes: []output.ImageLoadNode{
			{NodeID: sampleNode, Result: output.ImagesNotLoaded, Images: []string{}},
		}},
		"kubernetes-check":       sampleKubernetesCheck(),
		"kubernetes-check-empty": output.KubernetesCheck{Nodes: []output.KubernetesCheckNode{}},
		"doctor": output.Doctor{Checks: []output.Check{
			{Name: "user", Level: "ok", Essential: true, Found: "root: every role has a user ID of its own"},
			{Name: "luks", Level: "missing", Found: "no device mapper", Consequence: "volumes cannot be encrypted with luks", Advice: "Use another kernel."},
			{Name: "pidfd", Level: "missing", Essential: true, Found: "pidfd_open: function not implemented", Consequence: "no role can be held"},
		}},
		"doctor-runnable": output.Doctor{Runnable: true, Checks: []output.Check{{Name: "kernel", Level: "ok", Found: "6.12.1"}}},
		"bundle": output.Bundle{
			File: "b.tar.gz", Created: at(0), Redacted: 3, Contents: []output.BundleFile{{Name: "doctor.json", Size: 4096}, {Name: "x.log", Size: 4 << 20, Truncated: true}},
			Missing: []output.Missing{{What: "cluster/audit.json", Reason: "permission denied"}},
		},
		"audit":             filled[output.Audit](),
		"contexts":          filled[output.Contexts](),
		"context":           filled[output.Context](),
		"login":             filled[output.Login](),
		"logout":            filled[output.Logout](),
		"context-removed":   filled[output.ContextRemoved](),
		"ca":                filled[output.CA](),
		"operators":         filled[output.Operators](),
		"operator-change":   filled[output.OperatorChange](),
		"key":               filled[output.Key](),
		"whoami":            filled[output.WhoAmI](),
		"owner-replaced":    filled[output.OwnerReplaced](),
		"owner-is-replaced": output.OwnerReplaced{Node: "reeve-0", PublicKey: "AAAA", WaitingNodes: []string{"reeve-1", "reeve-2"}},
		"setup":             filled[output.Setup](),
	}
}

func ptr[T any](value T) *T { return &value }

func sampleStatus() *output.Status {
	return &output.Status{
		Node: output.NodeSelf{
			ID: sampleNode, Addresses: []string{"192.0.2.10", "2001:db8::10"}, APIAddress: "192.0.2.10:7444", Isolation: "shared-uid", Missing: sampleMissing(), Volume: "plain",
			Version: "0.2.0", CoreStart: at(time.Hour), Problem: "the metrics are not served on 127.0.0.1:9464: stop the process that listens there",
		},
		Cluster:    output.Cluster{ID: "5f0c", Curators: []string{"192.0.2.10:7443"}},
		Membership: &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT, Reason: "no contact yet", Since: stamp(time.Minute)},
		Roles:      []*clusterv1.InstanceStatus{readyRole(), failedRole()},
		Problems:   []string{"the metrics are not served on 127.0.0.1:9464: stop the process that listens there", problem.OfRole(failedRole()), "the consensus store: the disk is slow"},
		Store:      sampleStore(),
		Snapshots:  &output.ScheduledSnapshots{IntervalSeconds: 6 * 3600, NewestTime: at(3 * time.Hour), NewestRevision: 4711},
		Storage: &clusterv1.StorageStatus{
			State: clusterv1.StorageState_STORAGE_STATE_OPEN, Kind: "plain", Location: "/var/lib/reeve/data", Sealer: "file", Sources: []*clusterv1.CukSource{}, Weaknesses: []string{"The volume is not encrypted."},
		},
	}
}

// sampleLocked is a volume of which everything can be said, with a problem that would move the cursor.
func sampleLocked() *clusterv1.StorageStatus {
	return &clusterv1.StorageStatus{
		State: clusterv1.StorageState_STORAGE_STATE_LOCKED, Kind: "luks", Encrypted: true, Location: "/dev/disk/by-id/x", Sealer: "tpm2", Step: "unsealing",
		Sources: []*clusterv1.CukSource{
			{Name: "recovery", State: clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING, Reason: "the owner's recovery key"}, {Name: "tpm", State: clusterv1.CukSourceState_CUK_SOURCE_STATE_FAILED, Reason: "PCR 7 has changed\x1b[2J"},
		},
		Problem: "the TPM does not give the configuration back, since PCR 7 has changed: unlock the node, and run `reeve node reseal`", Weaknesses: []string{}, Recoverable: false,
	}
}

func sampleStore() *consensusv1.StoreStatus {
	return &consensusv1.StoreStatus{
		ClusterId: "5f0c", Formed: true, MemberId: "8e9e", LeaderId: "8e9e", Quorum: true, Voter: true,
		Members:      []*consensusv1.StoreMember{{Id: "8e9e", Name: sampleNode}, {Id: "77aa", Name: otherNode, Learner: true}},
		DatabaseSize: 64 << 20, DatabaseInUse: 3 << 20, Quota: 2 << 30, Problem: "the disk is slow", LeaderChanges: 2,
	}
}

func sampleClusterNode() output.Node {
	return output.Node{
		ID: sampleNode, State: "Up", Healthy: true, Labels: map[string]string{"zone": "a", "rack": "7"}, Addresses: []string{"192.0.2.10"},
		APIAddress: "192.0.2.10:7444", Isolation: "own-uid", Missing: sampleMissing()[:1], Volume: "plain", Version: "0.2.0", Generation: 7, Created: at(49 * time.Hour), Reported: at(2 * time.Second),
		Assigned: []*clusterv1.RoleAssignment{{Role: "hostsfile", Configuration: `{"path":"/etc/hosts"}`, Generation: 3}, {Role: "lighthouse", Generation: 4}},
		Roles:    []*clusterv1.InstanceStatus{readyRole()},
		Storage:  sampleLocked(),
	}
}

func readyRole() *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{
		Role: "lighthouse", State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 4711, Restarts: 1, Endpoints: []*rolev1.Endpoint{{Name: "http", Address: "http://127.0.0.1:80/"}},
		Values: map[string]string{"color": "red"}, InstanceId: sampleNode + "/lighthouse/2", Plugin: "lighthouse", PluginVersion: "0.1.0", Digest: "sha256:00ff",
		ConfigurationGeneration: 4, Since: stamp(90 * time.Second), Started: stamp(95 * time.Second), Tier: clusterv1.Tier_TIER_GRANTED, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE, RolledBack: sampleRolledBack(),
	}
}

func failedRole() *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{
		Role: "hostsfile", State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "it failed 11 times in 10m", Restarts: 10, Endpoints: []*rolev1.Endpoint{}, Values: map[string]string{},
		InstanceId: sampleNode + "/hostsfile/12", Plugin: "hostsfile", PluginVersion: "0.1.0", Digest: "sha256:0f0f", ConfigurationGeneration: 3, Since: stamp(30 * time.Second),
		NextTry: stamp(-time.Minute), InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_TOLD, LastFailure: &clusterv1.Failure{
			Time: stamp(31 * time.Second), Cause: "the process ended by itself", ExitCode: ptr(int32(3)), Lines: []string{"panic: no hosts", "goroutine 1\t[running]"},
			Failures: 11, Budget: 10, Window: durationpb.New(10 * time.Minute), InstanceId: sampleNode + "/hostsfile/12", OutOfMemory: true,
		},
	}
}

func sampleRolledBack() *clusterv1.RolledBack {
	return &clusterv1.RolledBack{Version: "0.2.0", Digest: "sha256:0f0f", Reason: "it failed 3 times in 30s.", Time: stamp(time.Minute)}
}

func sampleMissing() []*clusterv1.Missing {
	return []*clusterv1.Missing{
		{Name: "cgroup-memory", Reason: "the control group cannot be written: run reeved as a service with Delegate=yes"}, {Name: "own-uid", Reason: "reeved is not root"},
	}
}

func sampleSandbox() *nodev1.Sandbox {
	return &nodev1.Sandbox{
		Tier: clusterv1.Tier_TIER_GRANTED, Uid: 1879048193, Gid: 1879048193, OwnUser: true, Capabilities: []string{"net-bind-service"}, NoNewPrivileges: true,
		DeniedSystemCalls: []string{"bpf", "mount"}, Reads: []string{"/etc", "/proc"}, Writes: []string{"/var/lib/reeve/data/roles/lighthouse"}, Executes: []string{},
		Listens: []string{"7443"}, Connects: []string{}, OwnMounts: true, OwnIpc: true, MemoryBytes: 1 << 30, Processes: 512, CpuWeight: 100, OpenFiles: 4096,
		ControlGroups: []string{"/sys/fs/cgroup/memory/reeve/lighthouse", "/sys/fs/cgroup/pids/reeve/lighthouse"}, Missing: sampleMissing(),
	}
}

func sampleEvents() []*nodev1.Event {
	return []*nodev1.Event{
		{Sequence: 1, Time: stamp(2 * time.Minute), Severity: nodev1.Severity_SEVERITY_INFO, Type: "CoreStarted", Message: "the core has started", Details: map[string]string{}},
		{
			Sequence: 2, Time: stamp(30 * time.Second), Severity: nodev1.Severity_SEVERITY_ERROR, Type: "RoleFailed", Role: "hostsfile", InstanceId: sampleNode + "/hostsfile/12",
			Message: "role hostsfile is Failed", Details: map[string]string{"exit_code": "3"},
		},
	}
}

func sampleRehearsed() output.Snapshot {
	sample := sampleSnapshot("age1x", "", "")
	sample.Rehearsal = &snapshot.Rehearsal{Keys: 120, Users: map[string]int64{"curator": 100, "ant": 3}, Records: 100}
	return sample
}

func sampleSnapshots() *clusterv1.ListSnapshotsResponse {
	task := func(number uint64, node string, ago time.Duration) *clusterv1.SnapshotTask {
		return &clusterv1.SnapshotTask{Number: number, NodeId: node, Asked: stamp(ago)}
	}
	return &clusterv1.ListSnapshotsResponse{
		Schedule: &clusterv1.SnapshotSchedule{IntervalSeconds: 21600, Keep: 7}, Task: task(3, otherNode, time.Hour), Problem: "the newest good snapshot is old",
		RecoveryRecipient: "age1new", Signers: []string{"sha256:0011"},
		Nodes: []*clusterv1.NodeSnapshots{
			{NodeId: sampleNode, Ended: task(2, sampleNode, 7*time.Hour), Snapshots: []*clusterv1.StoredSnapshot{
				{Name: "20260101T200605Z-2", Task: task(2, sampleNode, 7*time.Hour), Revision: 4712, Bytes: 2 << 20, Keys: 120, Recipient: "age1new", Signer: "sha256:0011"},
			}},
			{NodeId: otherNode, Ended: task(3, otherNode, time.Hour), Failure: "its disk is full", Snapshots: []*clusterv1.StoredSnapshot{
				{Name: "20260101T140605Z-1", Task: task(1, otherNode, 13*time.Hour), Revision: 4711, Bytes: 1 << 20, Keys: 119, Recipient: "age1old", Signer: "sha256:0011"},
			}},
		},
	}
}

func sampleSnapshot(recipient, knownAs, checked string) output.Snapshot {
	return output.Snapshot{
		File: "/backup/reeve.snapshot", Size: 1 << 20, Format: snapshot.Format, SignedBy: "sha256:0011", KnownAs: knownAs, Checked: checked,
		Manifest: snapshot.Manifest{
			ClusterID: "5f0c", NodeID: sampleNode, MemberID: "8e9e05c52164694d", Time: *at(time.Hour), Revision: 4711, CompactRevision: 4000, ReeveVersion: "0.1.0", StorageVersion: "3.7.0",
			Compression: snapshot.Compression, Recipient: recipient, DatabaseSize: 5 << 20, DatabaseSHA256: "aa11", PayloadSize: 1 << 20, PayloadSHA256: "bb22",
		},
	}
}
