package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// said is what Check says of the node: what it would be refused for, and what it would start without.
func (a *alive) said() (refused, lacked string) {
	a.t.Helper()
	problems, lacks := Check(a.t.Context(), a.parameters, a.file)
	return fmt.Sprint(errors.Join(problems...)), fmt.Sprint(errors.Join(lacks...))
}

const nothing = "<nil>"

// What would be refused is said before the start, all at once, and nothing is made.
func TestCheckSaysEverythingAtOnce(t *testing.T) {
	a := newAlive(t, plain())
	if found, lacked := a.said(); found != nothing || lacked != nothing {
		t.Fatalf("of a node that starts: %s; %s", found, lacked)
	}
	base := filepath.Dir(a.parameters.GetDirectories().GetSystem())
	before, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	hosts := filepath.Join(base, "hosts")
	if err := os.Symlink("/etc/hosts", hosts); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(hosts)
	a.parameters.Network = &nodev1.Network{ApiListen: "192.0.2.1:7444"} // of documentation, so no machine's
	a.parameters.Metrics = &nodev1.Metrics{Listen: taken.Addr().String()}
	a.parameters.GetBootstrap().Roles[1].Configuration = `{"peerListen": "` + taken.Addr().String() + `"}`
	a.parameters.Log = &nodev1.Log{File: filepath.Join(hosts, "log", "reeved.log")}
	a.parameters.Plugins[0].Grants = []*nodev1.BuiltinGrants{{Role: "api", Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": hosts}}}}}
	found, lacked := a.said()
	for _, want := range []string{
		"peerListen in the configuration of the role api is " + taken.Addr().String(),
		"log.file in the parameters: storage: ",
		"the role api is granted a file of this machine that it could not change: cannot replace " + hosts + ": it is, or lies behind, a symbolic link",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("it does not say %q in:\n%s", want, found)
		}
	}
	for _, want := range []string{
		"network.api_listen in the parameters is 192.0.2.1:7444, and this machine has no such address now",
		"metrics.listen in the parameters is " + taken.Addr().String() + ", and another program listens there",
	} {
		if !strings.Contains(lacked, want) {
			t.Errorf("it does not say that it starts without %q, but:\n%s", want, lacked)
		}
	}
	// A machine that is to be a node ends where somebody else listens.
	a.parameters.Network.ApiListen = taken.Addr().String()
	if found, lacked := a.said(); !strings.Contains(found, "network.api_listen") || strings.Contains(lacked, "network.api_listen") {
		t.Errorf("of another program on its port it says:\n%s\nand starts without:\n%s", found, lacked)
	}
	// A machine that is to join may be granted other files by its cluster. The grants may name the files of several nodes, and the configuration says which is this one's.
	a.parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{Roles: []*nodev1.BootstrapRole{{Role: "api"}}}}
	const says = "cannot replace "
	a.parameters.GetRegister().Roles[0].Configuration = `{"path": "` + hosts + `.mine"}`
	if found, lacked := a.said(); strings.Contains(found, says) || !strings.Contains(lacked, says+hosts+": it is, or lies behind, a symbolic link") {
		t.Errorf("of a machine that is to join: %s; %s", found, lacked)
	}
	mine := &rolev1.Grant{Name: "replace-file", Parameters: map[string]string{"path": hosts + ".mine"}}
	a.parameters.Plugins[0].Grants[0].Grants = append(a.parameters.Plugins[0].Grants[0].Grants, mine)
	if found, lacked := a.said(); strings.Contains(found+lacked, says) {
		t.Errorf("of a file that is another node's: %s; %s", found, lacked)
	}
	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadDir(base)
	if err != nil || !slices.EqualFunc(before, after, func(a, b os.DirEntry) bool { return a.Name() == b.Name() }) {
		t.Errorf("there was %v, now there is %v (%v)", before, after, err)
	}
}

// A configuration that does not fit its schema is refused before anything of the node is made: the parameters cannot correct it later.
func TestAConfigurationThatDoesNotFit(t *testing.T) {
	a := newAlive(t, plain())
	executable, err := os.ReadFile(a.parameters.GetPlugins()[0].GetPath())
	if err != nil {
		t.Fatal(err)
	}
	system := a.parameters.GetDirectories().GetSystem()
	a.parameters.Genesis = filepath.Join(filepath.Dir(system), genesis.FileName)
	if err := genesis.Write(a.parameters.GetGenesis(), &nodev1.Genesis{Version: genesis.Version, Plugins: []*clusterv1.PluginRecord{{
		Name: "band", Version: "1.0.0", Digests: map[string]string{store.Platform: fmt.Sprintf("sha256:%x", sha256.Sum256(executable))},
		Manifest: &rolev1.Manifest{Name: "band", Version: "1.0.0", Protocols: []string{store.RoleProtocol}, Roles: []*rolev1.RoleManifest{
			{Name: "store", Provides: []string{roles.CapabilityConsensus}}, {Name: "api", Provides: []string{roles.CapabilityCluster}, ConfigurationSchema: `{"properties": {"write": {"const": "goodbye"}}}`},
		}},
	}}}); err != nil {
		t.Fatal(err)
	}
	if err := a.refused(); !strings.Contains(err.Error(), "bootstrap.roles[1].configuration/write in the parameters does not fit the role api") {
		t.Errorf("the node ends with: %v", err)
	}
	if _, err := os.Stat(system); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the system directory: %v", err)
	}
}

// Of a node that runs nothing is said: the addresses are taken by itself.
func TestCheckOfANodeThatRuns(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAlive(t, plain())
	a.parameters.Metrics = &nodev1.Metrics{Listen: free.Addr().String()}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(filepath.Dir(a.parameters.GetDirectories().GetSystem()), "hosts")
	a.parameters.Plugins[0].Grants = []*nodev1.BuiltinGrants{{Role: "api", Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": hosts}}}}}
	a.start()
	a.until("the role", ready)
	if found, lacked := a.said(); found != nothing || lacked != nothing {
		t.Errorf("while it runs: %s; %s", found, lacked)
	}
	// Its roles are granted what the cluster says, whatever the parameters say now.
	a.parameters.Plugins[0].Grants = nil
	if err := os.Symlink("/etc/hosts", hosts); err != nil {
		t.Fatal(err)
	}
	if found, _ := a.said(); !strings.Contains(found, "cannot replace "+hosts+": it is, or lies behind, a symbolic link") {
		t.Errorf("of its file: %s", found)
	}
	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	// What its roles were to listen on before it was made counts no longer.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	a.parameters.GetBootstrap().Roles[1].Configuration = `{"peerListen": "` + taken.Addr().String() + `"}`
	if found, lacked := a.said(); found != nothing || lacked != nothing {
		t.Errorf("once it has ended: %s; %s", found, lacked)
	}
	// A node that is made starts without its own.
	for _, own := range []string{"192.0.2.1:7444", taken.Addr().String()} {
		a.parameters.Network = &nodev1.Network{ApiListen: own}
		if found, lacked := a.said(); found != nothing || !strings.Contains(lacked, "network.api_listen in the parameters is "+own) {
			t.Errorf("once it is made: %s; %s", found, lacked)
		}
	}
}

// What a disk or an image refuses is said.
func TestCheckOfDisks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	t.Run("read-only", func(t *testing.T) {
		d := newDisk(t, "state")
		a := newAlive(t, plain())
		a.parameters.Directories.Data = filepath.Join(d.at, "data")
		if err := unix.Mount("", d.at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		if found, _ := a.said(); !strings.Contains(found, "cannot write in "+d.at+" (read-only file system)") {
			t.Errorf("%q", found)
		}
	})
	t.Run("an image that does not fit", func(t *testing.T) {
		size := int64(1) << 50
		a := newAlive(t, &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: &size}}}})
		if found, _ := a.said(); !strings.Contains(found, "is not made because its disk is full") {
			t.Errorf("%q", found)
		}
	})
	t.Run("a device that is not there", func(t *testing.T) {
		a := newAlive(t, &nodev1.Volume{Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: filepath.Join(t.TempDir(), "disk")}}})
		if found, _ := a.said(); !strings.Contains(found, "there is no such device") {
			t.Errorf("%q", found)
		}
	})
	t.Run("directories that roles cannot pass", func(t *testing.T) {
		a := newAlive(t, plain())
		closed := filepath.Join(filepath.Dir(a.parameters.GetDirectories().GetData()), "closed")
		if err := errors.Join(os.Mkdir(closed, 0o700)); err != nil {
			t.Fatal(err)
		}
		a.parameters.Directories.Data = filepath.Join(closed, "data")
		if found, _ := a.said(); !strings.Contains(found, "chmod o+x "+closed) {
			t.Errorf("%q", found)
		}
	})
}
