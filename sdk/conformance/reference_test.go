package conformance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/sdk/conformance"
)

const referenceFile = "../../docs/reference/conformance.md"

// TestReference holds that the page of the suite is that of the checks. UPDATE_GOLDEN=1 writes it anew.
func TestReference(t *testing.T) {
	got := reference()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(referenceFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("docs/reference/conformance.md is not that of the checks: run `UPDATE_GOLDEN=1 go test -run TestReference .` in sdk/conformance")
	}
}

const preface = `# The conformance suite

<!-- Generated from the checks: ` + "`UPDATE_GOLDEN=1 go test -run TestReference .`" + ` in sdk/conformance. -->

` + "`reeve plugin test FILE`" + ` runs the suite on a plugin's executable, in whatever language it is written, with no cluster. ` + "`make conformance`" + ` runs it on the
built-in plugins and the examples, which all conform. In a Go module of its own a plugin can run it as a test, with ` + "`conformance.Run(t, conformance.Config{Executable: …})`" + `;
a plugin with a ConsensusUser adds ` + "`Store: store.Open`" + `, of the package ` + "`sdk/conformance/store`" + `, and ` + "`Reeved`" + ` is the file of reeved, without which the checks that need a sandbox are skipped there.

The plugin runs as the caller's user, against a host that the suite stands in for: a node that is a member of a cluster, with nothing else on it. A role with
a ConsensusUser has its part of a real etcd there, which confines it as the cluster's store does. A role is granted what its manifest asks for; a file that it may replace, a host name and a machine ID are the stand-in's, not the machine's.

Most checks start it without a sandbox, so that what they find is not of that. Two start it in the sandbox that a node would have for the role, made by ` + "`reeved`" + ` (` + "`reeved confine`" + `), which lies beside
` + "`reeve`" + `: as root, with a user and a view of the file systems of its own; as another user, with what that user can enforce (Landlock and seccomp), and the check says what is missing. Memory and processes are not bounded by control
groups, which are a node's. Where files or system calls cannot be kept from a role at all, or there is no reeved, these checks are not run.

## What a run says

A check has one of four results:

| result | meaning |
|---|---|
| pass | it is as the check demands |
| fail | it is not; the reason says what was seen |
| skip | the manifest declares that the plugin does not have what the check is about: nothing else is ever skipped |
| not run | a check failed that this one needs, so that it would only find the same again; or others were asked for (` + "`--check`" + `); or the run was interrupted; or there was no consensus store, or no sandbox on this machine |

The verdict on a profile is **does not conform** if one of its checks failed, **incomplete** if none failed and not all were run, **not applicable** if all were skipped, and **conforms**
otherwise. A plugin conforms if it conforms to every profile that applies to it. The profiles of this version of the suite (%s):

| profile | for whom |
|---|---|
| core | every plugin |
| consensus user | a plugin with a role that has a ConsensusUser |
| network service | a plugin with a role that has ports, or wants to listen on some (one that provides a capability is seen only when that is used) |
| privileged | a plugin with a role that wants powers of the host, paths, capabilities, or to have no sandbox |

A role may say that it is Blocked by the machine on which the suite runs, which lacks something that the role needs, if its manifest wants powers, paths, capabilities or the network beyond it: with a reason, and while it
is so it has to be as well-behaved as any other. The report names such roles (` + "`blocked`" + `): the suite could not test them at work. What can only be seen of a role that works, such as its endpoints, is then not run.

What was measured of every role is in the report as its figures: its start, its memory, what it uses while it has nothing to do, and what it has more of after it was made to work 200 times.

## The checks
`

// reference is the page of the suite.
func reference() string {
	var text strings.Builder
	fmt.Fprintf(&text, preface, conformance.Version)
	for _, group := range conformance.Groups() {
		fmt.Fprintf(&text, "\n### %s\n\n%s\n\n| check | what is demanded, and why |\n|---|---|\n", group.Name, group.Title)
		for _, check := range group.Checks() {
			fmt.Fprintf(&text, "| `%s` | %s |\n", check.ID, check.Sentence)
		}
	}
	return text.String()
}
