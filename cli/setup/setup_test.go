package setup_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/setup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPlan returns a plan whose every place is below a directory of the test's own.
func newPlan(t *testing.T) (string, setup.Plan) {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	plugins := filepath.Join(root, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{setup.Consensus, setup.Curator, setup.Hostsfile} {
		if err := os.WriteFile(filepath.Join(plugins, name), []byte("#!"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, setup.Plan{
		File: filepath.Join(root, "etc", "node.yaml"), State: filepath.Join(root, "state"), Run: filepath.Join(root, "run"), Plugins: plugins,
		OwnerKeyFile: filepath.Join(root, "owner.key"), Address: "192.0.2.10", DryRun: false,
	}
}

// tree returns every file below a directory with its mode and content.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			found[path] += " " + string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMake(t *testing.T) {
	root, plan := newPlan(t)
	plan.HostsFile, plan.MetricsListen, plan.LogFile = "/etc/hosts", "127.0.0.1:9100", "/var/log/reeve/reeved.log"
	result, err := setup.Make(plan)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := setup.ReadParameters(plan.File)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := keyfile.Read(plan.OwnerKeyFile, "the owner key", "--owner-key")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(parameters.GetBootstrap().GetOwnerPublicKey(), owner.Public().(ed25519.PublicKey)) || !result.OwnerKeyMade {
		t.Error("the parameters do not name the owner whose key was made")
	}
	for what, pair := range map[string][2]string{
		"system":   {parameters.GetDirectories().GetSystem(), plan.State + "/system"},
		"data":     {parameters.GetDirectories().GetData(), plan.State + "/data"},
		"run":      {parameters.GetDirectories().GetRun(), plan.Run},
		"api":      {parameters.GetNetwork().GetApiListen(), "192.0.2.10:7444"},
		"address":  {strings.Join(parameters.GetNetwork().GetAddresses(), " "), "192.0.2.10"},
		"curator":  {parameters.GetBootstrap().GetRoles()[1].GetConfiguration(), `{"listen":"192.0.2.10:7443"}`},
		"hosts":    {parameters.GetPlugins()[2].GetGrants()[0].GetGrants()[0].GetParameters()["path"], "/etc/hosts"},
		"metrics":  {parameters.GetMetrics().GetListen(), "127.0.0.1:9100"},
		"log":      {parameters.GetLog().GetFile(), "/var/log/reeve/reeved.log"},
		"document": {string(result.Document), content(t, plan.File)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
	shared := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		shared = 0o711
	}
	for path, mode := range map[string]fs.FileMode{
		plan.File: 0o644, plan.OwnerKeyFile: 0o600, plan.State: shared, plan.State + "/system": 0o700, plan.State + "/data": shared, plan.Run: shared,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want mode %v", path, info, err, mode)
		}
	}
	for _, path := range result.Made {
		if _, err := os.Stat(path); err != nil || !strings.HasPrefix(path, root) {
			t.Errorf("made %s: %v", path, err)
		}
	}
	before := tree(t, root)
	if _, err := setup.Make(plan); fault.CodeOf(err) != fault.Refused {
		t.Errorf("the second time: %v", err)
	}
	if after := tree(t, root); !maps.Equal(before, after) {
		t.Errorf("the second time changed\n%v\ninto\n%v", before, after)
	}
}

// Without an address of the operator's the node listens on all that the machine has at the time.
func TestNoAddress(t *testing.T) {
	_, plan := newPlan(t)
	plan.Address, plan.Interfaces, plan.DryRun = "", []string{"eth1"}, true
	result, err := setup.Make(plan)
	if err != nil {
		t.Fatal(err)
	}
	network := result.Parameters.GetNetwork()
	if len(network.GetAddresses()) > 0 || network.GetApiListen() != ":7444" || !slices.Equal(network.GetInterfaces(), plan.Interfaces) {
		t.Errorf("network %v", network)
	}
	if got := result.Parameters.GetBootstrap().GetRoles()[1].GetConfiguration(); got != `{"listen":":7443"}` {
		t.Errorf("the curator: %s", got)
	}
	plan.CuratorListen = "7443"
	if _, err := setup.Make(plan); fault.CodeOf(err) != fault.Usage {
		t.Errorf("no host:port: %v", err)
	}
	plan.CuratorListen, plan.MetricsListen = "", ":9100"
	if _, err := setup.Make(plan); fault.CodeOf(err) != fault.Usage {
		t.Errorf("metrics everywhere without being asked: %v", err)
	}
}

// TestGenesis holds that the catalog which was built with the plugins is named where it lies beside them, and nowhere else.
func TestGenesis(t *testing.T) {
	_, plan := newPlan(t)
	plan.DryRun = true
	file := filepath.Join(plan.Plugins, setup.GenesisFile)
	for _, step := range []struct {
		make func() error
		want string
		code fault.Code
	}{
		{func() error { return nil }, "", fault.OK},
		{func() error { return os.WriteFile(file, []byte("{}"), 0o644) }, file, fault.OK},
		{func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o755)) }, "", fault.Failed},
	} {
		if err := step.make(); err != nil {
			t.Fatal(err)
		}
		result, err := setup.Make(plan)
		if fault.CodeOf(err) != step.code || err == nil && result.Parameters.GetGenesis() != step.want {
			t.Errorf("%v: the parameters name %q, want %q", err, result.Parameters.GetGenesis(), step.want)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDryRunMakesNothing(t *testing.T) {
	root, plan := newPlan(t)
	plan.DryRun = true
	before := tree(t, root)
	result, err := setup.Make(plan)
	if err != nil {
		t.Fatal(err)
	}
	if after := tree(t, root); !maps.Equal(before, after) {
		t.Errorf("a dry run made\n%v\nof\n%v", after, before)
	}
	plan.DryRun = false
	done, err := setup.Make(plan)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(result.Made, done.Made) {
		t.Errorf("a dry run tells of %q, and made is %q", result.Made, done.Made)
	}
}

// What is there is used: an owner's key, directories, and the state of a node that has lost its parameters.
func TestKeepsWhatIsThere(t *testing.T) {
	_, plan := newPlan(t)
	owner, err := keyfile.Create(plan.OwnerKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	configuration := filepath.Join(plan.State, "system", "configuration.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(configuration), 0o755), os.WriteFile(configuration, []byte("{}"), 0o400)); err != nil {
		t.Fatal(err)
	}
	result, err := setup.Make(plan)
	if err != nil {
		t.Fatal(err)
	}
	if result.OwnerKeyMade || !owner.Equal(ed25519.PublicKey(result.Parameters.GetBootstrap().GetOwnerPublicKey())) {
		t.Error("the owner's key was not used")
	}
	if !result.Continues || content(t, configuration) != "{}" {
		t.Error("the node that was there is not seen, or was changed")
	}
	if slices.Contains(result.Made, plan.State) {
		t.Errorf("made %q", result.Made)
	}
}

func TestOwnerPublicKey(t *testing.T) {
	root, plan := newPlan(t)
	elsewhere := t.TempDir()
	owner, err := keyfile.Create(filepath.Join(elsewhere, "owner.key"))
	if err != nil {
		t.Fatal(err)
	}
	plan.OwnerKeyFile, plan.OwnerKey = "", owner
	if _, err := setup.Make(plan); err != nil {
		t.Fatal(err)
	}
	for path, what := range tree(t, root) {
		if strings.Contains(what, "PRIVATE KEY") {
			t.Errorf("%s holds a private key", path)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		edit func(root string, plan *setup.Plan)
		code fault.Code
	}{
		"no owner":            {func(_ string, p *setup.Plan) { p.OwnerKeyFile = "" }, fault.Usage},
		"two owners":          {func(_ string, p *setup.Plan) { p.OwnerKey = make([]byte, 32) }, fault.Usage},
		"no plugins":          {func(root string, p *setup.Plan) { p.Plugins = filepath.Join(root, "none") }, fault.NotFound},
		"no key":              {func(root string, p *setup.Plan) { p.OwnerKeyFile = filepath.Join(root, "plugins", "curator") }, fault.Usage},
		"nowhere for the key": {func(root string, p *setup.Plan) { p.OwnerKeyFile = filepath.Join(root, "none", "key") }, fault.NotFound},
		"no address":          {func(_ string, p *setup.Plan) { p.Address = "localhost" }, fault.Usage},
		"every address":       {func(_ string, p *setup.Plan) { p.Address = "0.0.0.0" }, fault.Usage},
		"no port":             {func(_ string, p *setup.Plan) { p.MetricsListen = "127.0.0.1" }, fault.Usage},
		"too long":            {func(root string, p *setup.Plan) { p.Run = filepath.Join(root, strings.Repeat("r", 48)) }, fault.Usage},
		"a file in the way":   {func(root string, p *setup.Plan) { p.State = filepath.Join(root, "plugins", "curator") }, fault.Failed},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			root, plan := newPlan(t)
			test.edit(root, &plan)
			_, err := setup.Make(plan)
			if err == nil || fault.CodeOf(err) != test.code {
				t.Fatalf("error %v, want code %d", err, test.code)
			}
			if _, err := os.Stat(plan.File); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the parameters were written all the same: %v", err)
			}
		})
	}
}

func TestCreateOnlyKeepsTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for n, text := range []string{"one", "two"} {
		made, err := setup.CreateOnly(path, []byte(text), 0o640)
		if err != nil || made != (n == 0) {
			t.Fatalf("made %v, error %v", made, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || content(t, path) != "one" {
		t.Errorf("%v %v", entries, err)
	}
}
