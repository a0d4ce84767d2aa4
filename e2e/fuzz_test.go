package e2e

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parsers is every parser of bytes that come from outside, by its fuzz target: what a person, a role, a node, the cluster or the disk may give. A new
// parser comes with a target of its own, and a target that is not here, or only here, fails the test. `make fuzz` runs all of them.
var parsers = map[string]string{
	// What a person gives.
	"core/params.FuzzParse":                                    "parameters of a node",
	"cli/setup.FuzzReadParameters":                             "parameters of a node, read by the command line",
	"cli/setup.FuzzVolumeAndSeal":                              "kind of volume and sealer, as flags",
	"cli/recovery.FuzzParse":                                   "recovery key",
	"cli/recovery.FuzzOpen":                                    "recovery file, opened by the recovery key",
	"core/seal/recovery.FuzzParse":                             "what a recovery file held, given to unlock a node",
	"cli/keyfile.FuzzKeys":                                     "files of private and public keys",
	"cli/contexts.FuzzParse":                                   "the command line's contexts",
	"cli/contexts.FuzzParseSession":                            "the session of a context",
	"cli/redact.FuzzText":                                      "texts and documents of a support bundle",
	"sdk/role.FuzzConfigure":                                   "configuration of a role, read into the struct of its author",
	"sdk/role.FuzzDecode":                                      "configuration of a role, in the role",
	"proto/configuration.FuzzConfiguration":                    "configuration of a role, and its schema, in the cluster and in parameters",
	"plugins/curator/internal/rules.FuzzSameConfiguration":     "two configurations of a role that may say the same",
	"plugins/hostsfile/keeper.FuzzConfiguration":               "configuration of hostsfile",
	"plugins/archive/internal/configuration.FuzzConfiguration": "configuration of archive",
	"plugins/archive/internal/target.FuzzCredentials":          "credentials of archive",
	"proto/ticket.FuzzParse":                                   "the text of a ticket",
	"proto/attest.FuzzOpen":                                    "the envelope of a conformance report",
	"proto/snapshot.FuzzReadHeader":                            "a snapshot of the store",
	"proto/attest.FuzzStatement":                               "the statement of a conformance report",
	// What is on disk.
	"core/seal.FuzzLoad":                                     "sealed configuration",
	"core/seal.FuzzFile":                                     "key of the sealed configuration, sealed by a file",
	"core/seal/recovery.FuzzRead":                            "recovery file",
	"core/seal/tpm2.FuzzUnseal":                              "secret sealed by a TPM",
	"core/seal/tpm2.FuzzObject":                              "object of a TPM in a sealed secret",
	"core/keys.FuzzWrapped":                                  "wrapped key of the volume",
	"core/unseal.FuzzForms":                                  "sealed forms of a secret",
	"core/params.FuzzConsumed":                               "parameters that made a node",
	"core/storage.FuzzDocument":                              "documents in the system directory",
	"core/storage/fscrypt.FuzzSuperblock":                    "file system of an image",
	"core/storage/luks.FuzzHeader":                           "header of a LUKS device",
	"core/storage/luks.FuzzSignature":                        "what is on a device that is to be formatted",
	"core/storage.FuzzVolume":                                "mark of a volume",
	"core/access.FuzzNextStart":                              "order of the core's starts",
	"core/catalog.FuzzParseAssignment":                       "the last assignment",
	"core/identity.FuzzCertificates":                         "certificates of the cluster and the node",
	"core/plugin.FuzzRecord":                                 "records of instances",
	"core/plugin/users.FuzzFiles":                            "numbers of instances, user IDs of roles, ranges of user IDs",
	"core/roles.FuzzParseHistory":                            "failures of roles",
	"core/events.FuzzFiles":                                  "events",
	"plugins/consensus/internal/store.FuzzParseMarker":       "mark of a member of the store",
	"plugins/consensus/internal/store.FuzzParsePromise":      "promise of a member of the store",
	"plugins/consensus/internal/desired.FuzzParse":           "desired members and users of the store",
	"plugins/consensus/internal/numbers.FuzzParse":           "numbers of ConsensusUsers, and their leases",
	"core/plugin/users.FuzzAccounts":                         "accounts of the host, for a chosen range of user IDs",
	"core/catalog.FuzzParseLedger":                           "when executables were imported",
	"core/diskguard.FuzzParseStopped":                        "roles that filled the disk",
	"core/genesis.FuzzParse":                                 "genesis catalog",
	"plugins/kubernetes/internal/pki.FuzzAuthorities":        "the authorities of Kubernetes, and where their rotation stands",
	"proto/remit.FuzzOf":                                     "grants",
	"plugins/curator/internal/store.FuzzDecode":              "the cluster's records",
	"plugins/curator/internal/store.FuzzAuditEntry":          "the cluster's audit log",
	"plugins/hostsfile/block.FuzzRewrite":                    "the managed block of a hosts file",
	"plugins/hostsfile/keeper.FuzzHostLines":                 "hosts file, for looking up a name",
	"core/hostapi.FuzzMachineID":                             "machine ID",
	"core/cluster.FuzzKept":                                  "curators that the node knows",
	"plugins/consensus/internal/desired.FuzzParseState":      "how far the store has come",
	"plugins/consensus/internal/peers.FuzzParseAnnouncement": "a node that asks for a place in the store",
	"plugins/consensus/internal/peers.FuzzParseAuthority":    "the CA of the store's members",
	"plugins/consensus/internal/peers.FuzzParseState":        "what a member keeps of its peers",
	"plugins/kubernetes/internal/machine.FuzzSysctls":        "what sysctls were before a worker set them",
	// What other nodes and machines say.
	"core/enrol.FuzzVerify":                                  "certificates of what says that it is a curator",
	"plugins/consensus/internal/peers.FuzzNameOf":            "certificate of a member of the store",
	"proto/identity.FuzzCertificateRequest":                  "certificate request of a role, or of a member of the store",
	"plugins/kubernetes/internal/pki.FuzzCertificateRequest": "certificate request of a role or an operator, for Kubernetes",
	"plugins/curator/internal/tickets.FuzzRegistration":      "what a machine says of itself when it registers",
	"proto/reeve/cluster/v1.FuzzParseIncarnation":            "which start of a node calls",
	"sdk/role.FuzzHostPort":                                  "address of a role on another node",
	"sdk/role.FuzzIssued":                                    "certificates that a role was issued",
	"sdk/role.FuzzPeerOf":                                    "certificate of a role on another node",
	// What the machine says.
	"core/seal/tpm2.FuzzAnswers":      "answers of a TPM",
	"proto/mountinfo.FuzzParse":       "mounts of the machine",
	"core/storage/volume.FuzzProcess": "processes that use a volume",
	// What a plugin or a role says.
	"core/plugin.FuzzHandshakeLine":   "first line of a plugin",
	"core/plugin/store.FuzzManifest":  "manifest",
	"core/plugin.FuzzStatus":          "status that a role states",
	"core/plugin.FuzzRefusal":         "problems of a configuration that a role refuses",
	"core/plugin/output.FuzzLineText": "line of a role's log, for the reason of an end",
	"core/nodeapi.FuzzLogLines":       "log of a role, for who reads it",
	"core/metrics.FuzzMerge":          "metrics of a role",
	"core/hostapi.FuzzRequests":       "requests on a host socket",
	"core/hostapi.FuzzGrant":          "parameters of a grant",
	"core/hostapi.FuzzHostname":       "name of the host",
	"core/cluster.FuzzFit":            "what the roles of a node state, for the node's report",
	"proto/limits.FuzzText":           "any text that people get to see",
	"proto/logline.FuzzParse":         "a line of the log of a role",
	// What comes over the network.
	"plugins/curator/internal/nodes.FuzzNodeStatus": "report of a node",
	"plugins/curator/internal/rules.FuzzPlugin":     "plugin for the catalog, with its manifest and grants",
	"plugins/curator/internal/server.FuzzBootstrap": "bootstrap of a cluster",
	"proto/identity.FuzzSessionOf":                  "certificate of a session",
	// What the kernel says.
	"core/proc.FuzzParseStat": "/proc/PID/stat, for the processes of roles",
}

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// TestFuzzTargets finds a parser that has lost its target, and a target that is not known.
func TestFuzzTargets(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for module := range walls {
		root := filepath.Join(suite.programs.Workspace, module)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			room, err := filepath.Rel(suite.programs.Workspace, filepath.Dir(path))
			for _, target := range fuzzTarget.FindAllSubmatch(source, -1) {
				found[room+"."+string(target[1])] = true
				seeds, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(target[1]), "*"))
				if len(seeds) == 0 && !strings.Contains(string(source), "f.Add(") {
					t.Errorf("%s.%s has no seed corpus", room, target[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if parsers[name] == "" {
			t.Errorf("%s is not in the list of parsers: say what it parses", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(parsers)) {
		if !found[name] {
			t.Errorf("%s (%s) is gone", name, parsers[name])
		}
	}
}
