package e2e

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	pages "github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
)

// beaconPackage copies examples/beacon and the protocols, so that what npm and the build leave is not in the checkout, and installs what it needs. It skips the test where there is no
// Node.js, npm or registry.
func beaconPackage(t *testing.T) *terminal.Terminal {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("examples/beacon was not built or run: there is no %s", program)
		}
	}
	if err := exec.CommandContext(t.Context(), "node", "-e", "const [major, minor] = process.versions.node.split('.'); process.exit(major > 20 || major == 20 && minor >= 12 ? 0 : 1)").Run(); err != nil {
		t.Skip("examples/beacon was not built or run: Node.js is older than 20.12")
	}
	directory := filepath.Join(t.TempDir(), "beacon")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(suite.programs.Workspace, "examples", "beacon")
	for _, name := range []string{".npmrc", "package.json", "package-lock.json", "src", "proto", "scripts", "test"} {
		if output, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(source, name), directory).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	shell := terminal.New(t, directory, "REEVE_PROTO="+filepath.Join(suite.programs.Workspace, "proto"))
	// Without this npm waits for minutes where the registry, or the name server, does not answer: Node.js looks up two names at a time with its usual number of threads.
	if install := shell.Run(t, "UV_THREADPOOL_SIZE=64 npm ci --prefer-offline --fetch-retries=0 --fetch-timeout=10000"); install.Code != 0 {
		if unreachable.MatchString(install.Output) {
			t.Skipf("examples/beacon was not built or run: npm's registry is not reachable: %s", install)
		}
		t.Fatal(install)
	}
	return shell
}

var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ECONNECTIONTIMEOUT|EIDLETIMEOUT|ERESPONSETIMEOUT|ETRANSFERTIMEOUT|ENOTCACHED`)

func buildBeacon(t *testing.T, shell *terminal.Terminal, output string) {
	t.Helper()
	if built := shell.Run(t, "npm run build -- "+output); built.Code != 0 {
		t.Fatal(built)
	}
}

// TestBeacon builds the example that is not written in Go, runs its own tests and the conformance suite on it, and then runs it on a node as everybody can.
func TestBeacon(t *testing.T) {
	page := pages.Open(t, suite.programs.Workspace, "examples/beacon/README.md")
	t.Parallel()
	shell := beaconPackage(t)
	t.Run("tests", func(t *testing.T) { beaconTests(t, shell) })
	executable := filepath.Join(suite.base, "beacon-of-test", "beacon")
	buildBeacon(t, shell, executable)
	t.Run("the same bytes", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "beacon")
		buildBeacon(t, shell, again)
		if output, err := exec.CommandContext(t.Context(), "cmp", executable, again).CombinedOutput(); err != nil {
			t.Errorf("built again it is another executable: %v: %s", err, output)
		}
	})
	t.Run("lock file", func(t *testing.T) {
		lock, err := os.ReadFile(filepath.Join(suite.programs.Workspace, "examples", "beacon", "package-lock.json"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(lock), `"resolved"`) || !strings.Contains(string(lock), `"integrity": "sha512-`) {
			t.Error("the lock file names registries, or no digests")
		}
	})
	t.Run("conformance", func(t *testing.T) {
		report, err := conformance(t.Context(), executable)
		if err != nil {
			t.Error(err)
		}
		for _, result := range report.Results {
			if result.Status != "pass" && result.Status != "skip" {
				t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
			}
		}
		for _, profile := range report.Verdicts {
			if profile.Verdict != "conforms" {
				t.Errorf("profile %s: %s", profile.Profile, profile.Verdict)
			}
		}
	})
	t.Run("node", func(t *testing.T) {
		asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) { beaconOnNode(t, c, executable) })
	})
	t.Run("readme", func(t *testing.T) { beaconReadme(t, page, executable) })
}

// tapLine is the result of one test, as node writes it.
var tapLine = regexp.MustCompile(`^(not )?ok \d+ - (.*)$`)

func beaconTests(t *testing.T, shell *terminal.Terminal) {
	for _, line := range []string{"npm run --silent protocols", "node --test --test-reporter=tap test/"} {
		result := shell.Run(t, line)
		ran := 0
		for scanner := bufio.NewScanner(strings.NewReader(result.Output)); scanner.Scan(); {
			if found := tapLine.FindStringSubmatch(scanner.Text()); found != nil {
				ran++
				t.Run(found[2], func(t *testing.T) {
					if found[1] != "" {
						t.Error(result)
					}
				})
			}
		}
		if result.Code != 0 || strings.HasPrefix(line, "node") && ran == 0 {
			t.Error(result)
		}
	}
}

// lit is what a beacon's page says to programs.
type lit struct {
	Membership, Store string
	Beacons           []struct {
		Node, Message string
		Flashes       int
	}
}

func beaconPage(role devcluster.Role) (seen lit, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	response, err := client.Get(role.Endpoint("http") + "beacons")
	if err != nil {
		return seen, err
	}
	defer func() { _ = response.Body.Close() }()
	return seen, json.NewDecoder(response.Body).Decode(&seen)
}

// flashes waits until the beacon of the only node has flashed more than so many times.
func flashes(t *testing.T, c *devcluster.Cluster, more int) (count int) {
	t.Helper()
	eventually.True(t, patience, "the beacon flashes", func() (bool, string) {
		role := c.Status(t).Role("beacon")
		seen, err := beaconPage(role)
		if err != nil || role.State != "Ready" || len(seen.Beacons) != 1 {
			return false, "it is " + role.State
		}
		count = seen.Beacons[0].Flashes
		return count > more, "it does not count"
	})
	return count
}

func beaconOnNode(t *testing.T, c *devcluster.Cluster, executable string) {
	c.Up(t)
	c.MustReeve(t, "plugin", "add", "--approve", executable)
	node := c.Status(t).Node.ID
	refusedCommand(t, c, []string{"/interval"}, "node", "role", "add", node, "beacon", "--config", configuration(t, c, `{"interval": 0}`))
	c.MustReeve(t, "node", "role", "add", node, "beacon")
	first := flashes(t, c, 0)

	// The core is killed: the next one adopts the process, which goes on.
	status := c.Status(t)
	before := status.Role("beacon")
	c.Kill(t, c.Core(t).PID)
	c.MustReeve(t, "dev", "up", "--detach")
	if after := c.Status(t); !maps.Equal(after.PIDs(), status.PIDs()) {
		t.Errorf("the roles were %v, and under the next core they are %v", status, after)
	}
	first = flashes(t, c, first)

	// Its process is killed: the next one counts on.
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, patience, "another process", func() (bool, string) {
		role := c.Status(t).Role("beacon")
		return role.PID != before.PID && role.State == "Ready", "it is " + role.State
	})
	flashes(t, c, first)
	c.MustReeve(t, "node", "role", "remove", node, "beacon")
}

// beaconReadme runs the commands of its README. What make builds is there already, and the suite has been run.
func beaconReadme(t *testing.T, page *pages.Page, executable string) {
	c := newCluster(t)
	c.Directory = filepath.Join(c.Home, "dev")
	if err := os.MkdirAll(filepath.Join(c.Home, "bin", "examples"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(executable, filepath.Join(c.Home, "bin", "examples", "beacon")); err != nil {
		t.Fatal(err)
	}
	shell := terminal.New(t, c.Home, "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"))
	shell.Path = suite.programs.Directory + ":" + shell.Path
	said := make(map[string]string)
	page.Follow(t, func(step pages.Step) {
		if step.Kind != pages.Command {
			t.Fatalf("line %d of the page is nothing that this test knows how to follow: %s", step.Line, step.Text)
		}
		result := shell.Run(t, step.Text)
		if result.Code != 0 {
			t.Fatal(result)
		}
		said[step.Text] = result.Output
	})
	for command, text := range map[string]string{
		"reeve node role add self beacon --dir ./dev": "Ready", "reeve logs self beacon --dir ./dev": "the beacon is lit", "reeve dev down --dir ./dev": "Stopped",
	} {
		if !strings.Contains(said[command], text) {
			t.Errorf("%s does not say %q:\n%s", command, text, said[command])
		}
	}
}
