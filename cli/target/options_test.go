package target_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
)

// TestWhichCluster has several ways to a cluster at once, and takes the first of them away, one after the other.
func TestWhichCluster(t *testing.T) {
	flags, lab, usual, dev, current, host := newRigOf(t, "f1"), newRigOf(t, "c1"), newRigOf(t, "c2"), newRigOf(t, "d1"), newRigOf(t, "c3"), newRigOf(t, "e1")
	store := contexts.New(filepath.Join(flags.dir, "config"))
	for name, r := range map[string]*rig{"lab": lab, "usual": usual, "current": current} {
		options := r.bySocket()
		options.Contexts = store
		r.login(options, target.LoginPlan{Name: name, KeyFile: r.ownerKey})
	}
	use := func(name string) {
		if err := store.Update(t.Context(), func(config *contexts.Config) error { config.Current = name; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	use("current")
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("var", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dev.dir, target.DefaultDirectory); err != nil {
		t.Fatal(err)
	}
	options := target.Options{Socket: flags.socket, UsualContext: "usual", HostSocket: host.socket, Contexts: store, Now: flags.options().Now}
	expect := func(want string) {
		t.Helper()
		cluster, err := target.Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cluster.Close() }()
		status, err := cluster.LocalStatus(t.Context())
		if err != nil || status.GetCluster().GetClusterId() != want {
			t.Errorf("cluster %q, %v; want %s", status.GetCluster().GetClusterId(), err, want)
		}
	}
	expect("f1")
	options.Socket, options.Dir = "", flags.dir
	expect("f1")
	options.Dir, options.Context = "", "lab"
	expect("c1")
	options.Context = ""
	expect("c2")
	var noticed []string
	options.Notice = func(notice string) { noticed = append(noticed, notice) }
	expect("c2")
	options.UsualContext = ""
	expect("d1")
	use("")
	expect("d1")
	options.HostSocket = filepath.Join(host.dir, "none")
	expect("d1") // nothing else could be meant
	use("current")
	options.HostSocket = host.socket
	if len(noticed) != 2 || !strings.Contains(noticed[0], "./var/dev is meant") || !strings.Contains(noticed[0], "not the current context current: give --context current") ||
		!strings.Contains(noticed[1], "not the node that is installed on this machine: give --socket "+host.socket) {
		t.Errorf("notices %q", noticed)
	}
	options.Notice = func(notice string) { t.Errorf("there is no choice, and yet: %s", notice) }
	if err := os.Remove(target.DefaultDirectory); err != nil {
		t.Fatal(err)
	}
	expect("c3")
	use("")
	expect("e1")
	options.HostSocket = filepath.Join(host.dir, "none")
	_, err := target.Open(t.Context(), options)
	if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "`reeve context use NAME`") {
		t.Errorf("nothing is left: %v", err)
	}
	options.Contexts = contexts.New("")
	_, err = target.Open(t.Context(), options)
	if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "`reeve dev up` makes a cluster; `reeve login`") {
		t.Errorf("nothing was ever there: %v", err)
	}
}

// TestDirectoryOfAnother is where somebody else has made a directory in which a cluster is looked for if nothing is said.
func TestDirectoryOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	r := newRig(t)
	options := r.bySocket()
	options.Contexts = contexts.New(filepath.Join(r.dir, "config"))
	r.login(options, target.LoginPlan{Name: "chosen", KeyFile: r.ownerKey})
	options.Socket = ""
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(target.DefaultDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(target.DefaultDirectory, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err := target.Open(t.Context(), options)
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "belongs to user 65534") || !strings.Contains(err.Error(), "--dir "+target.DefaultDirectory) {
		t.Errorf("nothing is said: %v", err)
	}
	options.Dir = target.DefaultDirectory
	if _, err := target.Open(t.Context(), options); fault.CodeOf(err) != fault.Unreachable {
		t.Errorf("it is named: %v", err)
	}
}

func TestContradictions(t *testing.T) {
	for _, test := range []struct {
		options target.Options
		code    fault.Code
		want    string
	}{
		{target.Options{Dir: "d", Socket: "s"}, fault.Usage, "--dir and --socket name two clusters"},
		{target.Options{Socket: "s", Address: "a:1"}, fault.Usage, "--socket and --address name two clusters"},
		{target.Options{Dir: "d", Context: "lab"}, fault.Usage, "--dir and --context name two clusters"},
		{target.Options{Address: "a:1"}, fault.Usage, "reeve login --address a:1"},
		{target.Options{Context: "lab"}, fault.NotFound, "reeve context list"},
		{target.Options{UsualContext: "lab"}, fault.NotFound, "REEVE_CONTEXT names it"},
		{target.Options{Socket: "/nowhere/node.sock"}, fault.Unreachable, "no node listens at /nowhere/node.sock"},
	} {
		_, err := target.Open(t.Context(), test.options)
		if fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test.options, err)
		}
	}
}

// TestSocketProvesNobody asks the cluster API by a local socket alone.
func TestSocketProvesNobody(t *testing.T) {
	r := newRig(t)
	cluster, err := target.Open(t.Context(), r.bySocket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	err = list(t.Context(), cluster)
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "reeve login --socket "+r.socket+" --key FILE") {
		t.Error(err)
	}
}
