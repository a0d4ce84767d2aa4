package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
)

// TestDamage has files that cannot be read: the error says which and what to do, and nothing is written over.
func TestDamage(t *testing.T) {
	ca := newAuthority(t, "c0ffee")
	good := &contexts.Config{Contexts: []contexts.Context{ca.context("lab")}}
	text, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string) string {
		if !strings.Contains(string(text), from) {
			t.Fatalf("%s is not in the file", from)
		}
		return strings.Replace(string(text), from, to, 1)
	}
	for _, test := range []struct {
		name, text, want string
		code             fault.Code
	}{
		{"empty", "", "is damaged", fault.Failed},
		{"cut", string(text[:len(text)/2]), "is damaged", fault.Failed},
		{"twice", string(text) + string(text), "is damaged", fault.Failed},
		{"no version", replace(`"version": "reeve.contexts.v1",`, ""), "names no version", fault.Failed},
		{"newer", `{"version": "reeve.contexts.v2", "places": {}}`, `another version of reeve: its format is "reeve.contexts.v2"`, fault.Refused},
		{"unknown field", replace(`"name"`, `"colour": "red", "name"`), "a field that is not known", fault.Failed},
		{"wrong type", replace(`"/run/reeve/node.sock"`, `17`), "socket is a number", fault.Failed},
		{"no CA", replace(`BEGIN CERTIFICATE`, `BEGIN NOTHING`), "the cluster's CA", fault.Failed},
		{"no current", replace(`"contexts"`, `"current": "gone", "contexts"`), `"gone", is not there`, fault.Failed},
		{"name", replace(`"lab"`, `"../lab"`), "a name that is none", fault.Failed},
		{"address", replace(`c.example:7443`, `c.example`), "not an address", fault.Failed},
		{"path", replace(`/home/alice/key`, `key`), "not an absolute path", fault.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := contexts.New(t.TempDir())
			if err := os.WriteFile(store.ConfigFile(), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			changed := store.Update(t.Context(), func(config *contexts.Config) error { config.Put(ca.context("other")); return nil })
			_, loaded := store.Load()
			for _, err := range []error{changed, loaded} {
				if fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), store.ConfigFile()) {
					t.Errorf("exit code %d: %v", fault.CodeOf(err), err)
				}
			}
			if there, err := os.ReadFile(store.ConfigFile()); err != nil || string(there) != test.text {
				t.Errorf("the file has changed: %v", err)
			}
		})
	}
}

func TestDamagedSessions(t *testing.T) {
	dir := t.TempDir()
	store, ca := contexts.New(dir), newAuthority(t, "c0ffee")
	file := filepath.Join(dir, "sessions", "lab.json")
	session := ca.session(t, "alice", start.Add(time.Hour))
	write(t, store, "lab", session)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, store, "lab", ca.session(t, "alice", start.Add(time.Hour)))
	other, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := func(text []byte) string { return strings.SplitAfter(string(text), `"certificates"`)[0] }
	for name, damaged := range map[string]string{
		"cut": string(text[:len(text)-20]), "empty": "", "another's certificate": half(text) + strings.SplitAfter(string(other), `"certificates"`)[1],
		"no key": strings.Replace(string(text), "BEGIN PRIVATE KEY", "BEGIN KEY", 1),
	} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Session("lab"); fault.CodeOf(err) != fault.Failed || !strings.Contains(err.Error(), "reeve login --name lab") ||
			strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: %v", name, err)
		}
		// Another login replaces it.
		write(t, store, "lab", session)
	}
	newer := strings.Replace(string(text), contexts.SessionVersion, "reeve.session.v9", 1)
	if err := os.WriteFile(file, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Session("lab"); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a newer session: %v", err)
	}
	lock, err := store.LockSession(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if err := lock.Write(session); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a newer session was written over: %v", err)
	}
	if there, err := os.ReadFile(file); err != nil || string(there) != newer {
		t.Errorf("the newer session has changed: %v", err)
	}
}
