package howto_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// comparing is how long it may take until a member that differs is named: the leader compares once a minute, and looks twice.
const comparing = 4 * time.Minute

// TestReplaceADamagedMember follows the page "Replace a damaged member": one whose database holds another value than the others, and one whose log has a flipped byte.
func TestReplaceADamagedMember(t *testing.T) {
	r := newReader(t, "docs/how-to/replace-a-damaged-member.md")
	first, second, bad := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "second", "192.0.2.11"), r.lab.Machine(t, "bad", "192.0.2.20")
	r.firstNode(first)
	r.join("--role consensus --role curator", second, bad)
	r.calls("reeve-6f1c", bad)
	r.calls("reeve-02ab", first)
	r.machines["damaged"] = bad
	id := r.names["reeve-6f1c"]()
	data := bad.File("/var/lib/reeve/data/roles/consensus")
	well := func() {
		t.Helper()
		eventually.True(t, comparing, "three nodes have the store and the cluster API, and no problem", func() (bool, string) {
			result := r.desk.Run(t, "reeve node list")
			if result.Code != 0 { // the leader of the store may be another one in a moment
				return false, result.String()
			}
			for _, machine := range []*lab.Machine{first, second, bad} {
				node := r.listed(r.id(machine))
				if node.Problem != "" || !node.ready("consensus") || !node.ready("curator") {
					return false, result.String()
				}
			}
			return true, ""
		})
		// What was acknowledged is there, whichever curator answers.
		for _, machine := range []*lab.Machine{first, second, bad} {
			result := r.desk.Must(t, "reeve describe node "+id+" --address "+machine.Address+":7443 --ca ca.pem --owner-key owner.key")
			for _, written := range r.written {
				if !strings.Contains(result.Stdout, written) {
					t.Errorf("the curator of %s has lost %s: %s", machine.Name, written, result)
				}
			}
		}
	}
	write := func(label string) {
		t.Helper()
		r.desk.Must(t, "reeve node label "+id+" "+label)
		r.written = append(r.written, label)
	}
	problem := func(bound time.Duration, what string, says ...string) {
		t.Helper()
		eventually.True(t, bound, what, func() (bool, string) {
			problem := r.listed(id).Problem
			return !slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(problem, text) }), problem
		})
	}
	well()

	r.events["a-value-is-changed"] = func() {
		write("rack=gold-of-seven")
		bad.Must(t, "systemctl stop reeved")
		alter(t, filepath.Join(data, "etcd/member/snap/db"), func(content []byte) []byte {
			return bytes.ReplaceAll(content, []byte("gold-of-seven"), []byte("lead-of-seven"))
		})
		write("while=off")
		bad.Must(t, "systemctl start reeved")
		problem(comparing, "the damaged member is named", "its member of the consensus store is damaged: ", "reeve store replace "+id)
		eventually.True(t, comparing, "it gives no access", func() (bool, string) {
			result := bad.Run(t, "reeve status")
			return !r.listed(id).ready("curator") && strings.Contains(result.Stdout, "the data of this node's member of the store is damaged"), result.String()
		})
		for _, machine := range []*lab.Machine{first, second} {
			if result := machine.Must(t, "reeve status"); !strings.Contains(result.Stdout, "the member of "+id+" is damaged") {
				t.Errorf("%s does not name it: %s", machine.Name, result)
			}
		}
		write("while=damaged")
		r.written = slices.DeleteFunc(r.written, func(label string) bool { return label == "while=off" })
	}
	r.events["it-is-replaced"] = well
	r.events["the-log-is-damaged"] = func() {
		bad.Must(t, "systemctl stop reeved")
		logs, err := filepath.Glob(filepath.Join(data, "etcd/member/wal/*.wal"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("the log: %v, %v", logs, err)
		}
		alter(t, logs[len(logs)-1], func(content []byte) []byte { content[1000] ^= 0xff; return content })
		bad.Must(t, "systemctl start reeved")
		problem(comparing, "the role says which file is damaged", "is damaged: ", filepath.Base(logs[len(logs)-1]), "reeve store replace "+id)
		write("shelf=two")
	}
	r.events["it-is-replaced-again"] = well
	r.follow()
}

// alter changes a file, and fails if that changes nothing.
func alter(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := how(bytes.Clone(content))
	if bytes.Equal(changed, content) {
		t.Fatalf("%s has nothing to change", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0) // its owner and mode stay
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(changed, 0); err != nil {
		t.Fatal(err)
	}
}
