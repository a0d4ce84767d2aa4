package role_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
)

func TestManifestProblems(t *testing.T) {
	good := func() role.Plugin {
		return role.Plugin{Name: "p", Version: "1.0.0", Roles: []role.Role{{Name: "r", Run: wait}}}
	}
	if _, err := good().Manifest(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*role.Plugin){
		`plugin name "P"`:           func(p *role.Plugin) { p.Name = "P" },
		`plugin name ""`:            func(p *role.Plugin) { p.Name = "" },
		`version "1.0"`:             func(p *role.Plugin) { p.Version = "1.0" },
		`version "v1.0.0"`:          func(p *role.Plugin) { p.Version = "v1.0.0" },
		`no roles`:                  func(p *role.Plugin) { p.Roles = nil },
		`duplicate role "r"`:        func(p *role.Plugin) { p.Roles = append(p.Roles, p.Roles[0]) },
		`role "a/b": name`:          func(p *role.Plugin) { p.Roles[0].Name = "a/b" },
		`role "r": no Run function`: func(p *role.Plugin) { p.Roles[0].Run = nil },
		`summary: want one line`:    func(p *role.Plugin) { p.Roles[0].Summary = "a\nb" },
		`ConsensusUser "root/"`:     func(p *role.Plugin) { p.Roles[0].ConsensusUser = "root/" },
		`ConsensusUser "u" belongs to one role only`: func(p *role.Plugin) {
			p.Roles[0].ConsensusUser = "u"
			p.Roles = append(p.Roles, p.Roles[0])
			p.Roles[1].Name = "s"
		},
		`requires "reeve consensus"`: func(p *role.Plugin) { p.Roles[0].Requires = []string{"ok", "ok.v1", "reeve consensus"} },
		`provides "http"`:            func(p *role.Plugin) { p.Roles[0].Provides = []string{"ok.v1", "http"} },
		`grant "Replace"`:            func(p *role.Plugin) { p.Roles[0].Grants = []role.Grant{{Name: "Replace"}} },
		`parameter "a"`: func(p *role.Plugin) {
			p.Roles[0].Grants = []role.Grant{{Name: "g", Parameters: map[string]string{"a": "\xff"}}}
		},
		`port "" tcp/1`:              func(p *role.Plugin) { p.Roles[0].Ports = []role.Port{{Protocol: "tcp", Number: 1}} },
		`port "x" sctp/1`:            func(p *role.Plugin) { p.Roles[0].Ports = []role.Port{{Name: "x", Protocol: "sctp", Number: 1}} },
		`port "x" tcp/0`:             func(p *role.Plugin) { p.Roles[0].Ports = []role.Port{{Name: "x", Protocol: "tcp"}} },
		`configuration schema: want`: func(p *role.Plugin) { p.Roles[0].ConfigurationSchema = "{" },
		`configuration schema: 30000`: func(p *role.Plugin) {
			p.Roles[0].ConfigurationSchema = `{"a": "` + strings.Repeat("x", 300000-9) + `"}`
		},
		`65 roles`:                         func(p *role.Plugin) { p.Roles = make([]role.Role, 65) },
		`version "1.0.0-xxx`:               func(p *role.Plugin) { p.Version = "1.0.0-" + strings.Repeat("x", 59) },
		`one line of UTF-8 of at most 200`: func(p *role.Plugin) { p.Roles[0].Summary = strings.Repeat("x", 201) },
		`33 requirements`:                  func(p *role.Plugin) { p.Roles[0].Requires = make([]string, 33) },
		`33 capabilities`:                  func(p *role.Plugin) { p.Roles[0].Provides = make([]string, 33) },
		`33 grants`:                        func(p *role.Plugin) { p.Roles[0].Grants = make([]role.Grant, 33) },
		`65 ports`:                         func(p *role.Plugin) { p.Roles[0].Ports = make([]role.Port, 65) },
		`17 parameters`: func(p *role.Plugin) {
			p.Roles[0].Grants = []role.Grant{{Name: "g", Parameters: map[string]string{}}}
			for n := range 17 {
				p.Roles[0].Grants[0].Parameters[fmt.Sprint("p", n)] = "x"
			}
		},
		`parameter "long"`: func(p *role.Plugin) {
			p.Roles[0].Grants = []role.Grant{{Name: "g", Parameters: map[string]string{"long": strings.Repeat("x", 4097)}}}
		},
		`the manifest has`: func(p *role.Plugin) {
			p.Roles[0].ConfigurationSchema = `{"a": "` + strings.Repeat("x", 250000) + `"}`
			p.Roles = append(p.Roles, p.Roles[0])
			p.Roles[1].Name = "s"
		},
		`no grant "frobnicate"`: func(p *role.Plugin) { p.Roles[0].Grants = []role.Grant{{Name: "frobnicate"}} },
		`"0" is not a port`:     func(p *role.Plugin) { p.Roles[0].Grants = []role.Grant{role.GrantListen("0")} },
		`gives up "sleep"`:      func(p *role.Plugin) { p.Roles[0].GivesUp = []string{role.GiveUpNetwork, "sleep"} },
		`InSplit 7`:             func(p *role.Plugin) { p.Roles[0].InSplit = 7 },
		`StopGrace 5m0.000000001s: want 1s to 5m0s`: func(p *role.Plugin) { p.Roles[0].StopGrace = 5*time.Minute + 1 },
		`StopGrace -1s`: func(p *role.Plugin) { p.Roles[0].StopGrace = -time.Second },
	} {
		plugin := good()
		change(&plugin)
		if _, err := plugin.Manifest(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got: %v", want, err)
		}
	}
}

// Everything that is wrong is said at once.
func TestManifestTellsAll(t *testing.T) {
	_, err := role.Plugin{Name: "-", Version: "one", Roles: []role.Role{{Name: "r"}, {Name: "S", Run: wait}}}.Manifest()
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("got: %v", err)
	}
}

// The hello world of the documentation is a whole plugin in at most 30 lines.
func TestHelloIsShort(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(source), "\n"); lines > 30 {
		t.Errorf("it has %d lines", lines)
	}
}
