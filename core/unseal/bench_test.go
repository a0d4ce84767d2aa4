package unseal_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	making  = clusterv1.StorageState_STORAGE_STATE_MAKING
	locked  = clusterv1.StorageState_STORAGE_STATE_LOCKED
	isOpen  = clusterv1.StorageState_STORAGE_STATE_OPEN
	closing = clusterv1.StorageState_STORAGE_STATE_CLOSING
	sealed  = clusterv1.StorageState_STORAGE_STATE_SEALED
)

// T is what of testing.T and rapid.T the bench needs.
type T interface {
	Helper()
	Fatalf(format string, arguments ...any)
	Fatal(arguments ...any)
	Errorf(format string, arguments ...any)
}

// bench is a machine: a disk, a TPM, directories, and its owner's recovery key.
type bench struct {
	restore    *unseal.Restore
	layout     storage.Layout
	parameters *nodev1.Parameters
	identity   *age.X25519Identity
	tpm        *fakeTPM
	disk       *fakeDisk
	held       *storage.Storage
	room       *unseal.Room

	mu sync.Mutex
	// stopAt is the step at which the room is stopped, when it is taken for the stopIn-th time.
	stopAt checkpoint.Step
	stopIn int
	taken  []checkpoint.Step
	// before is called before each step is taken; nil: nothing is.
	before func(checkpoint.Step)
	stop   context.CancelFunc
	// running is the context of the opening that runs.
	running context.Context
}

func TestMain(m *testing.M) {
	volume.Patience = time.Minute // for the other tests of a busy machine
	os.Exit(m.Run())
}

var errStopped = errors.New("stopped by the test")

// newBench returns a machine with an encrypted volume, and a TPM if withTPM.
func newBench(t T, directory string, kind storage.VolumeKind, withTPM bool) *bench {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	owner, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		layout: storage.Layout{System: filepath.Join(directory, "system"), Data: filepath.Join(directory, "data"), Run: filepath.Join(directory, "run")},
		parameters: &nodev1.Parameters{
			Volume:  &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{}}},
			Cluster: &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{OwnerPublicKey: owner, RecoveryRecipient: identity.Recipient().String()}},
		},
		identity: identity, disk: &fakeDisk{kind: kind},
	}
	if withTPM {
		b.tpm = &fakeTPM{id: "A"}
	}
	return b
}

// directory is one through which every user may pass, as roles must.
func directory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp(memory(), "unseal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	if err := os.Chmod(path, 0o711); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *bench) at(step checkpoint.Step) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = append(b.taken, step)
	if b.before != nil {
		b.before(step)
	}
	if step != b.stopAt {
		return nil
	}
	if b.stopIn--; b.stopIn > 0 {
		return nil
	}
	if b.stop != nil {
		b.stop()
	}
	return errStopped
}

// start is a new core.
func (b *bench) start(t T) error {
	t.Helper()
	b.kill(t)
	var err error
	if b.held, err = storage.Open(b.layout); err != nil {
		t.Fatal(err)
	}
	config := unseal.Config{Log: hclog.NewNullLogger(), Storage: b.held, Parameters: b.parameters, Restore: b.restore}
	var kind func(string) volume.Kind
	if b.disk != nil {
		kind = func(string) volume.Kind { return b.disk }
	}
	var tpm unseal.TPM
	if b.tpm != nil {
		tpm = b.tpm
	}
	b.room, err = unseal.NewWith(config, tpm, kind, b.at)
	return err
}

// kill is the end of a core that closes nothing.
func (b *bench) kill(t T) {
	t.Helper()
	if b.held != nil {
		if err := b.held.Close(); err != nil {
			t.Fatal(err)
		}
		b.held, b.room = nil, nil
	}
}

// reboot is kill, and the volume is closed by it.
func (b *bench) reboot(t T) {
	t.Helper()
	b.kill(t)
	b.disk.set(func(d *fakeDisk) { d.open = false })
}

// opening is an Open that runs.
type opening struct {
	cancel context.CancelFunc
	done   chan struct{}
	opened *unseal.Opened
	err    error
}

func (b *bench) open() *opening {
	ctx, cancel := context.WithCancel(context.Background())
	o := &opening{cancel: cancel, done: make(chan struct{})}
	b.mu.Lock()
	b.stop, b.running = cancel, ctx
	b.mu.Unlock()
	room := b.room
	go func() {
		defer close(o.done)
		o.opened, o.err = room.Open(ctx)
	}()
	return o
}

// end ends it, wherever it is. What it came to is in err.
func (o *opening) end() {
	o.cancel()
	<-o.done
}

func (o *opening) wait(t T) error {
	t.Helper()
	select {
	case <-o.done:
		return o.err
	case <-time.After(5 * time.Minute):
		t.Fatal("Open does not return")
		return nil
	}
}

// up starts a core whose volume opens by itself.
func (b *bench) up(t T) *unseal.Opened {
	t.Helper()
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	if err := o.wait(t); err != nil {
		t.Fatalf("open: %v", err)
	}
	return o.opened
}

// until waits for a status.
func (b *bench) until(t T, what string, accept func(*clusterv1.StorageStatus) bool) *clusterv1.StorageStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := b.room.Status().Wait(ctx, accept)
	if err != nil {
		now, _ := b.room.Status().Get()
		t.Fatalf("%s: the status stays %v", what, now)
	}
	return s
}

func source(s *clusterv1.StorageStatus, name string) *clusterv1.CukSource {
	for _, source := range s.GetSources() {
		if source.GetName() == name {
			return source
		}
	}
	return nil
}

// recovered is what the recovery file holds, as its owner decrypts it.
func (b *bench) recovered(t T) []byte {
	t.Helper()
	file, err := os.ReadFile(b.layout.Recovery())
	if err != nil {
		t.Fatal(err)
	}
	return b.decrypt(t, file)
}

func (b *bench) decrypt(t T, file []byte) []byte {
	t.Helper()
	reader, err := age.Decrypt(bytes.NewReader(file), b.identity)
	if err != nil {
		t.Fatalf("decrypt the recovery file: %v", err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (b *bench) unlock(t T, recovered []byte) (*nodev1.UnlockResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return b.room.Unlock(ctx, &nodev1.UnlockRequest{Recovered: bytes.Clone(recovered)})
}

// heard is that the node hears its cluster's policy again, which allows every source. Before that, a node whose files were recovered asks no other than its owner.
func (b *bench) heard(t T) {
	t.Helper()
	if err := b.room.Allow(context.Background(), nil); err != nil {
		t.Fatalf("the cluster's policy is heard: %v", err)
	}
	if s, _ := b.room.Status().Get(); len(s.GetWeaknesses()) != 0 {
		t.Errorf("the cluster's policy was heard: %v", s.GetWeaknesses())
	}
}

// memory is where files are made durable at once, since there is no disk; else where files usually lie. The many starts of these tests wait for nothing then.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return "/var/tmp"
}

// context ends with the opening that runs.
func (b *bench) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}
