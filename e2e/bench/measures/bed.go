package measures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/bench"
)

// Programs are the executables that are measured.
type Programs struct{ Directory string }

// Version is the one that is stamped on reeved.
func (p Programs) Version(ctx context.Context) (string, error) {
	said, err := exec.CommandContext(ctx, p.reeved(), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", p.reeved(), err)
	}
	fields := strings.Fields(string(said))
	if len(fields) == 0 {
		return "", fmt.Errorf("%s says no version", p.reeved())
	}
	return fields[len(fields)-1], nil
}

func (p Programs) reeved() string            { return filepath.Join(p.Directory, "reeved") }
func (p Programs) reeve() string             { return filepath.Join(p.Directory, "reeve") }
func (p Programs) plugin(name string) string { return filepath.Join(p.Directory, "plugins", name) }
func (p Programs) lighthouse() string        { return filepath.Join(p.Directory, "examples", "lighthouse") }
func (p Programs) bench(name string) string  { return filepath.Join(p.Directory, "bench", name) }

// Bed is where measures run: the executables and two directories that every user can pass through, since roles have users of their own.
type Bed struct {
	Programs Programs
	// Work is on a disk, Run on a tmpfs and short: paths of sockets end at 107 bytes.
	Work, Run string
	// Quick has every measure do only what it takes to see that it works: its figures mean nothing.
	Quick bool
	// Nodes is with how many simulated nodes a curator is measured, the fewest first; empty: 1,000. Beyond that values that change are not measured.
	Nodes  []int
	places int
	// kept says that something could not be stopped, whose files are kept.
	kept bool
}

// count is how many times something is measured, after how many that are thrown away.
func (b *Bed) count(warm, count int) (int, int) {
	if b.Quick {
		return 1, 6 // the fewest that have an interval
	}
	return warm, count
}

// lasting is how long something is measured.
func (b *Bed) lasting(d time.Duration) time.Duration {
	if b.Quick {
		return d / 50
	}
	return d
}

// NewBed makes a bed below two directories. Close removes it.
func NewBed(programs Programs, work, run string) (*Bed, error) {
	b := &Bed{Programs: programs}
	var err error
	if b.Work, err = makeOpen(work); err != nil {
		return nil, err
	}
	if b.Run, err = makeOpen(run); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// RunPlace returns the directory of a tmpfs for NewBed, and whether there is one: without it, the directory for temporary files.
func RunPlace() (string, bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &stat); err == nil && stat.Type == unix.TMPFS_MAGIC && unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm", true
	}
	return os.TempDir(), false
}

func makeOpen(parent string) (string, error) {
	directory, err := os.MkdirTemp(parent, "rb")
	if err != nil {
		return "", err
	}
	return directory, os.Chmod(directory, 0o711)
}

// Close removes everything, but what could not be stopped.
func (b *Bed) Close() error {
	if b.kept {
		return fmt.Errorf("%s and %s are kept for what was not stopped", b.Work, b.Run)
	}
	var problems []error
	for _, directory := range []string{b.Work, b.Run} {
		if directory != "" {
			problems = append(problems, os.RemoveAll(directory))
		}
	}
	return errors.Join(problems...)
}

// place is two new directories, of the same number below Work and Run.
type place struct{ work, run string }

func (b *Bed) place() (place, error) {
	b.places++
	name := strconv.Itoa(b.places)
	p := place{work: filepath.Join(b.Work, name), run: filepath.Join(b.Run, name)}
	for _, directory := range []string{p.work, p.run} {
		if err := os.Mkdir(directory, 0o711); err != nil {
			return place{}, err
		}
		if err := os.Chmod(directory, 0o711); err != nil {
			return place{}, err
		}
	}
	return p, nil
}

func (p place) remove() error { return errors.Join(os.RemoveAll(p.work), os.RemoveAll(p.run)) }

// sameDevice fails if two directories are not on one file system: their figures could not be compared.
func sameDevice(a, b string) error {
	var one, other unix.Stat_t
	if err := errors.Join(unix.Stat(a, &one), unix.Stat(b, &other)); err != nil {
		return err
	}
	if one.Dev != other.Dev {
		return fmt.Errorf("%s and %s are on different file systems", a, b)
	}
	return nil
}

// All returns every measure.
func All(bed *Bed) []bench.Measure {
	return []bench.Measure{
		{Name: "launch", What: "launch to Ready of a role that does nothing", Run: bed.launch},
		{Name: "sandbox", What: "what the sandbox of a role costs its start", Run: bed.sandbox},
		{Name: "adopt", What: "a core is replaced under its roles", Run: bed.adopt},
		{Name: "memory", What: "many roles that do nothing", Run: bed.memory},
		{Name: "host-call", What: "a call of a role to its host", Run: bed.hostCall},
		{Name: "store", What: "the confined client of a role", Run: bed.store},
		{Name: "attacked", What: "the writes of a role while another one attacks the store or the directory", Run: bed.attacked},
		{Name: "restart", What: "exec of reeved to Home, consensus and curator Ready", Run: bed.restart},
		{Name: "sealed", What: "exec of reeved to Home with a sealed volume, beside a plain one", Run: bed.sealed},
		{Name: "unseal", What: "a TPM gives the volume's keys back, and the volume is opened", Run: bed.unseal},
		{Name: "writes", What: "the store on an encrypted volume, beside a plain one", Run: bed.writes},
		{Name: "role-add", What: "a role is added to a node", Run: bed.roleAdd},
		{Name: "growth", What: "a cluster of three nodes comes into being", Run: bed.growth},
		{Name: "remote-role", What: "a role is added to another node than the one that is asked", Run: bed.remote},
		{Name: "failover", What: "the node dies whose member leads the store", Run: bed.failover},
		{Name: "snapshot", What: "snapshots of a large store while a role writes", Run: bed.snapshot},
		{Name: "restore", What: "a cluster is made of the snapshot of a large store", Run: bed.restore},
		{Name: "recover-quorum", What: "the survivor of three nodes becomes the only member of the store", Run: bed.recoverQuorum},
		{Name: "nodes", What: "one curator and many simulated nodes", Run: bed.many},
		{Name: "idle", What: "a node that does nothing", Run: bed.idle},
		{Name: "plugin", What: "a plugin as its author begins with it", Run: bed.plugin},
		{Name: "death", What: "the death of a role is seen", Run: bed.death},
		{Name: "control-plane", What: "a control plane of Kubernetes, beside an API server by hand", Run: bed.controlPlane},
		{Name: "api-writes", What: "writes to the API server of Kubernetes, whose store is confined", Run: bed.apiWrites},
		{Name: "pods", What: "a fresh node runs a pod", Run: bed.pods},
		{Name: "conformance", What: "the conformance suite on a plugin", Run: bed.conformance},
	}
}
