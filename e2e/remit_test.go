package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// The tests of the remit say, line by line, what a role gets and what it loses: the catalog and its grants, the bytes that run, the sandbox as the kernel
// shows it, versions that do not come to work, what is taken back, and the store and the disk that a role shares with others.

// settingsRoom is how many bytes of the tenant's executable are for its settings.
const settingsRoom = 512

var tenants atomic.Int32

// tenant returns the executable of a tenant with settings, as the plugin's source says: a copy of one build.
func tenant(t *testing.T, settings ...string) string {
	t.Helper()
	empty := strings.Repeat("@", settingsRoom)
	executable, err := os.ReadFile(buildPlugin(t, "tenant", map[string]string{"settings": empty}))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(settings, ";")
	if n := bytes.Count(executable, []byte(empty)); n != 1 || len(text) > settingsRoom {
		t.Fatalf("%d places for settings of %d bytes", n, len(text))
	}
	text += strings.Repeat(" ", settingsRoom-len(text))
	file := filepath.Join(suite.base, fmt.Sprintf("tenant-%d", tenants.Add(1)))
	if err := os.WriteFile(file, bytes.Replace(executable, []byte(empty), []byte(text), 1), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// tell has a tenant do something; the arguments are names and values. It fails with what the tenant says of it.
func tell(t *testing.T, status devcluster.Status, role, method, what string, arguments ...string) (string, error) {
	t.Helper()
	query := make(url.Values)
	for n := 0; n+1 < len(arguments); n += 2 {
		query.Set(arguments[n], arguments[n+1])
	}
	return request(method, status.Role(role).URL()+"/"+what+"?"+query.Encode())
}

// mustTell is tell, and fails the test if the tenant could not do it.
func mustTell(t *testing.T, status devcluster.Status, role, method, what string, arguments ...string) string {
	t.Helper()
	answer, err := tell(t, status, role, method, what, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// refusedBy wants an error that has these parts.
func refusedBy(t *testing.T, err error, what string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, part)
		}
	}
}

// addTenant adds a tenant with settings, approves it, and gives its role to the node.
func addTenant(t *testing.T, c *devcluster.Cluster, role string, settings ...string) devcluster.Status {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", tenant(t, append(settings, "plugin="+role, "role="+role)...))
	c.MustReeve(t, "node", "role", "add", "self", role)
	return c.Status(t)
}

// asked is what a version asks for, or is granted.
type asked struct {
	Role          string       `json:"role"`
	ConsensusUser string       `json:"consensus_user"`
	Grants        []askedGrant `json:"grants"`
}

type askedGrant struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
}

// names are the grants as "name key=value", with the role before them, sorted.
func names(all []asked) []string {
	var found []string
	for _, of := range all {
		if of.ConsensusUser != "" {
			found = append(found, of.Role+": consensus-user "+of.ConsensusUser)
		}
		for _, grant := range of.Grants {
			text := of.Role + ": " + grant.Name
			for key, value := range grant.Parameters {
				text += " " + key + "=" + value
			}
			found = append(found, text)
		}
	}
	slices.Sort(found)
	return found
}

// shownPlugin is what `reeve plugin show -o json` promises.
type shownPlugin struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Digests map[string]string `json:"digests"`
	Genesis bool              `json:"genesis"`
	Roles   []asked           `json:"roles"`
	Waiting *struct {
		Version string  `json:"version"`
		Asks    []asked `json:"asks"`
		New     []asked `json:"new"`
	} `json:"waiting"`
}

func showPlugin(t *testing.T, c *devcluster.Cluster, name string) (shown shownPlugin) {
	t.Helper()
	document(t, c.MustReeve(t, "plugin", "show", name, "-o", "json"), &shown)
	return shown
}

// shownRole is what `reeve node role show -o json` promises.
type shownRole struct {
	Instance remitInstance `json:"instance"`
	Granted  asked         `json:"granted"`
	Sandbox  *struct {
		Tier           string        `json:"tier"`
		UID            uint32        `json:"uid"`
		GID            uint32        `json:"gid"`
		OwnUser        bool          `json:"own_user"`
		Capabilities   []string      `json:"capabilities"`
		NoNewPrivs     bool          `json:"no_new_privileges"`
		Writes         []string      `json:"writes"`
		Connects       []string      `json:"connects"`
		OwnMounts      bool          `json:"own_mounts"`
		OwnIPC         bool          `json:"own_ipc"`
		OpenFiles      int           `json:"open_files"`
		MemoryBytes    int64         `json:"memory_bytes"`
		ControlGroups  []string      `json:"control_groups"`
		DeniedCalls    []string      `json:"denied_system_calls"`
		Missing        []missingPart `json:"missing"`
		UnixSockets    bool          `json:"unix_sockets_only"`
		ProcessesBound int           `json:"processes"`
	} `json:"sandbox"`
	Usage *struct {
		ConsensusUser string `json:"consensus_user"`
		Bytes         int64  `json:"bytes"`
		BytesQuota    int64  `json:"bytes_quota"`
		Leases        int64  `json:"leases"`
		LeasesQuota   int64  `json:"leases_quota"`
		Refused       uint64 `json:"refused"`
	} `json:"usage"`
}

type missingPart struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// remitInstance is what a role's status says beyond devcluster.Role.
type remitInstance struct {
	State         string `json:"state"`
	Reason        string `json:"reason"`
	PID           int    `json:"pid"`
	PluginVersion string `json:"plugin_version"`
	Digest        string `json:"digest"`
	Tier          string `json:"tier"`
	RolledBack    *struct {
		Version string `json:"version"`
		Digest  string `json:"digest"`
		Reason  string `json:"reason"`
	} `json:"rolled_back"`
	LastFailure *struct {
		Cause       string `json:"cause"`
		Signal      string `json:"signal"`
		OutOfMemory bool   `json:"out_of_memory"`
		InstanceID  string `json:"instance_id"`
	} `json:"last_failure"`
}

func (s shownRole) String() string {
	text, _ := json.Marshal(s)
	return string(text)
}

// misses reports whether a part of the role's sandbox is said to be missing.
func (s shownRole) misses(name string) bool {
	return s.Sandbox != nil && slices.ContainsFunc(s.Sandbox.Missing, func(part missingPart) bool { return part.Name == name })
}

func showRole(t *testing.T, c *devcluster.Cluster, role string) (shown shownRole) {
	t.Helper()
	document(t, c.MustReeve(t, "node", "role", "show", "self", role, "-o", "json"), &shown)
	return shown
}

// awaitRole waits for what a role is shown to be.
func awaitRole(t *testing.T, c *devcluster.Cluster, role, what string, ok func(shownRole) bool) (shown shownRole) {
	t.Helper()
	eventually.True(t, patience, role+": "+what, func() (bool, string) {
		result := c.Reeve(t, "node", "role", "show", "self", role, "-o", "json")
		if result.Code != 0 {
			return false, result.String()
		}
		shown = shownRole{}
		if err := json.Unmarshal([]byte(result.Stdout), &shown); err != nil {
			return false, err.Error()
		}
		return ok(shown), shown.String()
	})
	return shown
}

// document reads the document that a command printed.
func document(t *testing.T, result devcluster.Result, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(result.Stdout), into); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
}

// refused wants that a command is refused, with these parts in what it says.
func refused(t *testing.T, result devcluster.Result, parts ...string) {
	t.Helper()
	if result.Code != exitRefused && result.Code != exitFailed {
		t.Errorf("it is not refused: %s", result)
	}
	for _, part := range parts {
		if !strings.Contains(result.Stderr, part) {
			t.Errorf("%q is not in what it says: %s", part, result)
		}
	}
}

// exists reports whether there is something at a path.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

const (
	get  = http.MethodGet
	post = http.MethodPost
)
