package devcluster

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/procfs"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// ImageSize is how large the images of encrypted volumes are: little more than the built-in plugins, one more, one that is being imported, and the log and the
// database of etcd take, some of which a core that was killed leaves twice. Their files take only the room that is used.
const ImageSize = 416 << 20

// Storage is the volume of a node and what keeps its keys.
type Storage struct {
	State       string      `json:"state"`
	Kind        string      `json:"kind"`
	Encrypted   bool        `json:"encrypted"`
	Location    string      `json:"location"`
	Sealer      string      `json:"sealer"`
	Sources     []KeySource `json:"sources"`
	Step        string      `json:"step"`
	Problem     string      `json:"problem"`
	Weaknesses  []string    `json:"weaknesses"`
	Recoverable bool        `json:"recoverable"`
}

// KeySource is a source of the cluster's half of the key of a volume.
type KeySource struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// Source returns the source of a name; the zero KeySource if there is none.
func (s Storage) Source(name string) KeySource {
	for _, source := range s.Sources {
		if source.Name == name {
			return source
		}
	}
	return KeySource{}
}

// RecoveryKey is the file of the owner's recovery key. It is not in the dev directory, which would make `reeve dev up` unlock the volume by itself.
func (c *Cluster) RecoveryKey() string { return filepath.Join(c.Home, "recovery.key") }

// Image is the file of the node's encrypted volume.
func (c *Cluster) Image() string { return c.Path("system", "volume.img") }

// NewRecoveryKey makes a recovery key in a file, and returns its public half.
func (c *Cluster) NewRecoveryKey(t testing.TB, file string) string {
	t.Helper()
	result := c.Run(t, c.Programs.Reeve(), "recovery-key", "new", file, "-o", "json")
	var key struct {
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &key); err != nil || result.Code != 0 || key.Recipient == "" {
		t.Fatalf("%v: %s", err, result)
	}
	return key.Recipient
}

// WriteSealed is WriteParameters for a node whose volume is an image that its file system encrypts, with its secrets in a file. edit may change that.
func (c *Cluster) WriteSealed(t testing.TB, edit ...func(*nodev1.Parameters)) {
	t.Helper()
	recipient := c.NewRecoveryKey(t, c.RecoveryKey())
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		p.Volume = &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: new(int64(ImageSize))}}}}
		p.GetBootstrap().RecoveryRecipient = recipient
		for _, change := range edit {
			change(p)
		}
	})
	// `reeve dev up` would make it; who starts reeved alone finds the node by it too.
	if err := os.Symlink(filepath.Join(c.Home, "r"), c.Path("run")); err != nil {
		t.Fatal(err)
	}
}

// StartCore starts reeved by itself, as the machine's service manager does: it may wait for a key as long as it likes. What it says is in the log. program is
// empty for the built one; environment is added to what every login has.
func (c *Cluster) StartCore(t testing.TB, program string, environment ...string) *Running {
	t.Helper()
	if program == "" {
		program = c.Programs.Reeved()
	}
	return c.startCore(t, program, c.Path("reeved.yaml"), c.Path("reeved.log"), environment)
}

// startCore starts a core that writes its log to a file.
func (c *Cluster) startCore(t testing.TB, program, parameters, logFile string, environment []string) *Running {
	t.Helper()
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program, arguments := c.wrap(program, []string{"--parameters", parameters})
	command := exec.Command(program, arguments...)
	command.Dir = c.Home
	command.Env = append(c.environment(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.credential()}
	command.Stdout, command.Stderr = log, log
	if err := c.startCommand(command); err != nil {
		t.Fatal(err)
	}
	r := &Running{PID: command.Process.Pid, command: command, ended: make(chan struct{})}
	c.commands.Go(func() {
		defer close(r.ended)
		// How it ended is in the state of the process.
		_ = command.Wait()
		r.result = Result{Command: command.String(), Code: command.ProcessState.ExitCode()}
	})
	return r
}

// Unlock unlocks the volume by a recovery key in a file.
func (c *Cluster) Unlock(t testing.TB, key string) Result {
	t.Helper()
	return c.Reeve(t, "node", "unlock", "--recovery-key", key)
}

// Mounts returns where something is mounted in the dev directory, what was mounted last first.
func (c *Cluster) Mounts(t testing.TB) []string {
	t.Helper()
	return mountsBelow(t, c.State())
}

func mountsBelow(t testing.TB, path string) []string {
	t.Helper()
	mounts, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, target := range mounts {
		if strings.HasPrefix(target, path+"/") {
			found = append([]string{target}, found...)
		}
	}
	return found
}

// Unmount unmounts what is mounted below a path, as the end of a machine does: the volume of a node that was killed with its roles, and their spools.
func Unmount(t testing.TB, path string) {
	t.Helper()
	for _, target := range mountsBelow(t, path) {
		// The kernel takes down the mounts of processes that have ended a moment later: until then the file system is in use.
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("unmount %s: %v", target, err)
		}
	}
}

// PowerOff takes away what does not outlive a machine that loses its power: the processes, what is mounted, with the keys that the kernel has, and what is in run/.
func (c *Cluster) PowerOff(t testing.TB) {
	t.Helper()
	c.KillAll(t)
	Unmount(t, c.State())
	run := filepath.Join(c.Home, "r")
	entries, err := os.ReadDir(run)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		c.remove(t, filepath.Join(run, entry.Name()))
	}
}

// WishesSealed says whether the node keeps that only its owner is to open its volume.
func (c *Cluster) WishesSealed(t testing.TB) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(c.Home, "r", "sealed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
