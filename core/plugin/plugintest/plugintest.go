// Package plugintest builds plugins for the tests of a core, and gives them a place to run. It owns nothing that outlives a test.
package plugintest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/core/rmtree"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Variant makes one test plugin another plugin: it is written into a variable of the executable, which changes the digest and not the program. A role may
// execute its executable and not read it, so that it has to be where the kernel loads it.
type Variant struct {
	Name  string `json:"name"`
	Roles []Role `json:"roles"`
	// Before is what it does instead of a handshake, or before it ("reach", "unsteady", "greedy"); empty: it is a plugin.
	Before string `json:"before,omitempty"`
	// Path is a socket, for the variant "foreign", and a file, for the variant "reach".
	Path string `json:"path,omitempty"`
	// Line is the handshake line of the variant "line".
	Line string `json:"line,omitempty"`
	// RPCs is how the variant "raw", which does without the SDK, behaves in a call of the role protocol that is named here: Hang, Huge,
	// HugeRefusal, Slow, Refuse or Absent.
	RPCs map[string]string `json:"rpcs,omitempty"`
	// Print is how many KiB the variant "raw" prints after its handshake, before it states its status.
	Print int `json:"print,omitempty"`
	// Chatter has the variant "raw" print without end after its handshake, a KiB every millisecond.
	Chatter bool `json:"chatter,omitempty"`
	// Impostor has the variant "raw" give its socket to a child in a group of its own when it gets SIGUSR1, and another instance ID when it gets SIGUSR2.
	Impostor bool `json:"impostor,omitempty"`
	// Protocols is what the variant "raw" says that it speaks; nil: the role protocol.
	Protocols []string `json:"protocols,omitempty"`
}

// How the variant "raw" behaves in a call.
const (
	// Hang never answers, whatever becomes of the call.
	Hang = "hang"
	// Huge answers with 100 MB, or as much as the call can hold.
	Huge = "huge"
	// HugeRefusal answers with an error of 100 MB.
	HugeRefusal = "huge refusal"
	// Slow answers after Slowness.
	Slow = "slow"
	// Refuse answers with an error: "no, thanks".
	Refuse = "refuse"
	// Absent does as if there were no such call. Of Describe: as if there were no role protocol at all.
	Absent = "absent"
)

// Slowness is how long an answer takes that is slow.
const Slowness = 500 * time.Millisecond

// Role is a role of a variant.
type Role struct {
	Name          string   `json:"name"`
	Requires      []string `json:"requires,omitempty"`
	Provides      []string `json:"provides,omitempty"`
	ConsensusUser string   `json:"consensusUser,omitempty"`
	EndsWithCore  bool     `json:"endsWithCore,omitempty"`
	// StopSeconds is its stop_grace; 0: it has none.
	StopSeconds int `json:"stopSeconds,omitempty"`
}

// Configuration is what a role of a variant does. It does what the other fields say first.
type Configuration struct {
	// Do is ready, degraded, blocked, starting, fail, return, panic, exit, stubborn, or slow: ready, and when it is stopped it writes its file "written" seven seconds later.
	Do string `json:"do"`
	// Signalled has it be ready, and do what Do says when it is sent SIGUSR1.
	Signalled bool `json:"signalled,omitempty"`
	// Log is lines for its standard error.
	Log []string `json:"log,omitempty"`
	// Environment has it write its environment to its standard error.
	Environment bool `json:"environment,omitempty"`
	// Children are processes to start: group, session or nameless.
	Children []string `json:"children,omitempty"`
	// Stdout is how many KiB it prints.
	Stdout int `json:"stdout,omitempty"`
	// Lines and Line are how many MiB it writes to its standard error: in lines, or without ever ending one.
	Lines int `json:"lines,omitempty"`
	Line  int `json:"line,omitempty"`
	// LogAlways has it write a line with a growing number to its standard error every so many milliseconds; 0: never.
	LogAlways int `json:"logAlways,omitempty"`
	// Write is the content of a file "written" in its data directory.
	Write string `json:"write,omitempty"`
	// HealthWrites has it write a file in its data directory each time that it is asked whether it is well.
	HealthWrites bool `json:"healthWrites,omitempty"`
	// Try is what to try and to publish as values, "ok" or the error: "read executable", "write executable", "replace executable", "mark".
	Try []string `json:"try,omitempty"`
	// Memory is how many MiB it takes and uses once it is ready, and Forks how many children in sessions of their own it starts; it publishes how many
	// came to be as "forks".
	Memory int `json:"memory,omitempty"`
	Forks  int `json:"forks,omitempty"`
}

// String is the configuration as a JSON document.
func (c Configuration) String() string {
	encoded, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot be: it holds nothing but texts and numbers
	}
	return string(encoded)
}

// SlotSize is how large a variant may be when it is encoded, in bytes.
const SlotSize = 4 << 10

// slotMark is what the variable begins with in the executable as it was built; zeros follow it.
const slotMark = "<variant>"

// InSlot is the variant that was written into the variable; nil if none was.
func InSlot(slot []byte) []byte {
	if bytes.HasPrefix(slot, []byte(slotMark)) {
		return nil
	}
	return bytes.TrimRight(slot, "\x00")
}

// Executable is a built test plugin.
type Executable struct {
	path string
	// read reads it, once.
	read func() (program, error)
}

func executable(path string) *Executable {
	return &Executable{path: path, read: sync.OnceValues(func() (program, error) { return read(path) })}
}

// ExecutableVariable names the environment variable by which a test that runs itself again hands its executable on.
const ExecutableVariable = "REEVE_TEST_PLUGIN"

// Build builds the test plugin into a directory, once for a whole test program. It calls the go command, unless the environment names an
// executable.
func Build(dir string) (*Executable, error) {
	if path := os.Getenv(ExecutableVariable); path != "" {
		return executable(path), nil
	}
	path := filepath.Join(dir, "testplugin")
	// Each node of a test hashes it, so that it is to be small: without the debugging information it has 14 MB instead of 20.
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "github.com/reeveproject/reeve/core/plugin/plugintest/testplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("plugintest: go build: %w\n%s", err, output)
	}
	return executable(path), os.Chmod(path, 0o755)
}

// Path of the executable.
func (e *Executable) Path() string { return e.path }

// program is the executable as it was built, and where in it the variant is.
type program struct {
	content []byte
	slot    int
	// before is the hash of what is before the variant.
	before hash.Cloner
}

func read(path string) (program, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	empty := append([]byte(slotMark), make([]byte, SlotSize-len(slotMark))...)
	at := bytes.Index(content, empty)
	if at < 0 || bytes.Contains(content[at+SlotSize:], empty) {
		return program{}, fmt.Errorf("%s has no place for a variant (at %d)", path, at)
	}
	before, ok := sha256.New().(hash.Cloner)
	if !ok {
		return program{}, errors.New("SHA-256 cannot be cloned")
	}
	_, _ = before.Write(content[:at])
	return program{content, at, before}, nil
}

// parts are the executable that is a variant: what is before the variant, the variant, and what is after it. They are not to be written.
func (e *Executable) parts(t testing.TB, variant Variant) (before, slot, after []byte) {
	t.Helper()
	read, err := e.read()
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(variant)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > SlotSize {
		t.Fatalf("a variant of %d bytes has no place in the executable", len(encoded))
	}
	return read.content[:read.slot], append(encoded, make([]byte, SlotSize-len(encoded))...), read.content[read.slot+SlotSize:]
}

// Bytes of the executable that is a variant.
func (e *Executable) Bytes(t testing.TB, variant Variant) []byte {
	t.Helper()
	return slices.Concat(e.parts(t, variant))
}

// Reader reads the executable that is a variant. It takes no memory of its own: these are many megabytes.
func (e *Executable) Reader(t testing.TB, variant Variant) io.Reader {
	t.Helper()
	before, slot, after := e.parts(t, variant)
	return io.MultiReader(bytes.NewReader(before), bytes.NewReader(slot), bytes.NewReader(after))
}

// Digest of the executable that is a variant, as a core's store names it. What is before the variant, which is nearly all of it, is hashed only once.
func (e *Executable) Digest(t testing.TB, variant Variant) string {
	t.Helper()
	_, slot, after := e.parts(t, variant)
	read, err := e.read()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := read.before.Clone()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = sum.Write(slot)
	_, _ = sum.Write(after)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Write makes a file of the executable that is a variant, which may be run.
func (e *Executable) Write(t testing.TB, path string, variant Variant) {
	t.Helper()
	before, slot, _ := e.parts(t, variant)
	from, err := os.Open(e.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel copies it.
	_, err = io.Copy(to, from)
	if err == nil {
		_, err = to.WriteAt(slot, int64(len(before)))
	}
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
}

// Dir makes a directory for a test, with a path so short that sockets fit below it and which every user may search.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rv")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rmtree.Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Deep makes so many directories, each in the one before, as a hostile role would: their path is far longer than the kernel takes.
func Deep(t testing.TB, path string, levels int) {
	t.Helper()
	at, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for n := 0; err == nil && n < levels; n++ {
		var below int
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			if below, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				err = unix.Close(at)
				at = below
			}
		}
	}
	if err == nil {
		err = unix.Close(at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Immutable makes a directory one that nobody can change or remove until the test ends. It skips the test where that takes more rights, or another
// file system.
func Immutable(t testing.TB, path string) {
	t.Helper()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	set := func(flag int) error {
		directory, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = directory.Close() }()
		flags, err := unix.IoctlGetInt(int(directory.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(directory.Fd()), unix.FS_IOC_SETFLAGS, flags&^immutable|flag)
	}
	if err := set(immutable); err != nil {
		t.Skipf("no immutable directories: %v", err)
	}
	t.Cleanup(func() {
		if err := set(0); err != nil {
			t.Error(err)
		}
	})
}

// Record is the catalog record of a variant, with every ConsensusUser granted.
func Record(digest string, variant Variant) *clusterv1.PluginRecord {
	record := &clusterv1.PluginRecord{
		Name: variant.Name, Version: "0.1.0",
		Digests: map[string]string{runtime.GOOS + "/" + runtime.GOARCH: digest},
		Manifest: &rolev1.Manifest{
			Name: variant.Name, Version: "0.1.0", Protocols: []string{"reeve.role.v1"},
		},
		Generation: 1,
	}
	for _, r := range variant.Roles {
		manifest := &rolev1.RoleManifest{
			Name: r.Name, Requires: r.Requires, Provides: r.Provides, ConsensusUser: r.ConsensusUser, EndsWithCore: r.EndsWithCore,
		}
		if r.StopSeconds != 0 {
			manifest.StopGrace = durationpb.New(time.Duration(r.StopSeconds) * time.Second)
		}
		record.Manifest.Roles = append(record.Manifest.Roles, manifest)
		record.Grants = append(record.Grants, &clusterv1.RoleGrants{Role: r.Name, ConsensusUser: r.ConsensusUser})
	}
	return record
}
