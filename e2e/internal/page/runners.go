package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Runner is the test that runs the commands of a page.
type Runner struct {
	// Page is the page's path in the repository.
	Page string
	// Package is the directory of the test's package, Test its name.
	Package, Test string
}

// Runners are all of them: a page with commands is here, and its test gets it by Open and in no other way.
func Runners() []Runner {
	return []Runner{
		{"README.md", "e2e/tutorial", "TestReadme"},
		{"docs/tutorial/your-first-role.md", "e2e/tutorial", "TestYourFirstRole"},
		{"docs/how-to/add-a-node.md", "e2e/howto", "TestAddANode"},
		{"docs/how-to/back-up-and-restore.md", "e2e/howto", "TestBackUpAndRestore"},
		{"docs/how-to/bring-back-a-lost-majority.md", "e2e/howto", "TestBringBackALostMajority"},
		{"docs/how-to/install-a-node.md", "e2e/howto", "TestInstallANode"},
		{"docs/how-to/move-the-control-plane.md", "e2e/howto", "TestMoveTheControlPlane"},
		{"docs/how-to/operate-one-node.md", "e2e", "TestOperateOneNode"},
		{"docs/how-to/prove-a-plugin.md", "e2e", "TestProveAPlugin"},
		{"docs/how-to/replace-a-damaged-member.md", "e2e/howto", "TestReplaceADamagedMember"},
		{"docs/how-to/replace-a-dead-node.md", "e2e/howto", "TestReplaceADeadNode"},
		{"docs/how-to/rotate-the-ca.md", "e2e/howto", "TestRotateTheCA"},
		{"docs/how-to/schedule-snapshots.md", "e2e/howto", "TestScheduledSnapshots"},
		{"docs/how-to/run-kubernetes.md", "e2e/kubernetes", "TestRunKubernetes"},
		{"docs/how-to/unlock-a-node.md", "e2e/howto", "TestUnlockANode"},
		{"docs/how-to/use-a-tpm.md", "e2e/howto", "TestUseATPM"},
		{"examples/beacon/README.md", "e2e", "TestBeacon"},
		{"examples/lighthouse/README.md", "e2e", "TestReadmeOfLighthouse"},
		{"plugins/curator/README.md", "e2e/howto", "TestReadmeOfCurator"},
		{"plugins/hostsfile/README.md", "e2e/howto", "TestReadmeOfHostsfile"},
	}
}

// Page is a page that a test follows.
type Page struct {
	// Name is its path in the repository, Text what it says.
	Name, Text string
	// Parts are what it has for the test.
	Parts []Part
}

// Open reads a page for the test that is its runner. workspace is the directory of go.work.
func Open(t testing.TB, workspace, name string) *Page {
	t.Helper()
	// That of another test would leave the page without one.
	registered := false
	test, _, _ := strings.Cut(t.Name(), "/")
	for _, runner := range Runners() {
		registered = registered || runner.Page == name && runner.Test == test
	}
	if !registered {
		t.Fatalf("%s is not the runner of %s: say so in page.Runners", t.Name(), name)
	}
	text, err := os.ReadFile(filepath.Join(workspace, name))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &Page{Name: name, Text: string(text), Parts: parts}
}

// Step is a command of a page, a code block that some command shows, or what happens between two of them.
type Step struct {
	Part
	// Expected is what comments say of it.
	Expected Expectation
	// Verb and Rest are a comment that is about no single command; empty: it is one.
	Verb, Rest string
}

// Follow has do do all steps of a page, in their order. What comments say is not run is not among them: it is logged. The test fails if comments are left over, and do has to
// fail it if it cannot do a step: there is no way to leave one out.
func (p *Page) Follow(t testing.TB, do func(Step)) {
	t.Helper()
	var expected Expectation
	ran := 0
	for i, part := range p.Parts {
		if part.Kind == Directive {
			if taken, err := expected.Take(part.Text); err != nil {
				t.Fatalf("%s:%d: %v", p.Name, part.Line, err)
			} else if !taken {
				verb, rest := cut(part.Text)
				do(Step{Part: part, Verb: verb, Rest: rest})
			}
			continue
		}
		if expected.Skip != "" {
			t.Logf("%s:%d: not run: %s (%s)", p.Name, part.Line, part.Text, expected.Skip)
		} else {
			do(Step{Part: part, Expected: expected})
			ran++
		}
		// It is said of a whole code block that it is not run, and of one command what is expected.
		if expected.Skip == "" || i+1 == len(p.Parts) || p.Parts[i+1].Block != part.Block {
			expected = Expectation{}
		}
	}
	if expected != (Expectation{}) {
		t.Errorf("%s: nothing comes after the comment for the test at its end: %+v", p.Name, expected)
	}
	if ran == 0 {
		t.Errorf("%s: nothing was run", p.Name)
	}
	t.Logf("%s: %d commands and outputs", p.Name, ran)
}

// Skipped returns the parts of a page that comments say are not run, with why.
func (p *Page) Skipped() (all []string) {
	reason := ""
	for i, part := range p.Parts {
		if part.Kind == Directive {
			if verb, rest := cut(part.Text); verb == "skip" {
				reason = rest
			}
			continue
		}
		if reason != "" {
			all = append(all, fmt.Sprintf("%s:%d: %s (%s)", p.Name, part.Line, part.Text, reason))
			if i+1 == len(p.Parts) || p.Parts[i+1].Block != part.Block {
				reason = ""
			}
		}
	}
	return all
}
