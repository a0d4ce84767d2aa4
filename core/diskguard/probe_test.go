package diskguard_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/diskguard"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// told keeps the types of events.
type told struct {
	mu    sync.Mutex
	types []string
}

func (r *told) Record(e *nodev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.types = append(r.types, e.GetType())
}

func (r *told) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.types, " ")
}

// TestProber: what a write meets is said once, and no longer when writes succeed again.
func TestProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var refusal error
		thawed := make(chan struct{})
		close(thawed)
		meet := func(err error, wait chan struct{}) {
			mu.Lock()
			defer mu.Unlock()
			refusal, thawed = err, wait
		}
		events := &told{}
		prober := diskguard.NewProber(diskguard.ProbeConfig{Data: "/data", Events: events, Write: func(string) error {
			mu.Lock()
			err, wait := refusal, thawed
			mu.Unlock()
			<-wait
			return err
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- prober.Run(ctx) }()
		expect := func(problem, types string, hung bool) {
			t.Helper()
			time.Sleep(11 * time.Second)
			synctest.Wait()
			got, _ := prober.Problem().Get()
			last := prober.Hung(t.Context())
			if (got == "") != (problem == "") || !strings.Contains(got, problem) || last.Equal(time.Now()) != hung || events.all() != types {
				t.Errorf("the problem is %q, it last hung %s, events %q", got, last, events.all())
			}
		}
		now := make(chan struct{})
		close(now)
		expect("", "", false)
		for _, full := range []error{unix.ENOSPC, unix.EDQUOT, unix.EOPNOTSUPP, fs.ErrNotExist} {
			meet(full, now)
			expect("", "", false)
		}
		meet(&fs.PathError{Err: unix.EROFS}, now)
		expect("the node's volume /data takes no writes", "VolumeTakesNoWrites", false)
		expect("unmount the file system", "VolumeTakesNoWrites", false)
		meet(nil, now)
		expect("", "VolumeTakesNoWrites VolumeTakesWrites", false)
		frozen := make(chan struct{})
		meet(nil, frozen)
		expect("the disk does not answer", "VolumeTakesNoWrites VolumeTakesWrites VolumeTakesNoWrites", true)
		meet(nil, now)
		expect("fsfreeze -u", "VolumeTakesNoWrites VolumeTakesWrites VolumeTakesNoWrites", true)
		close(frozen)
		expect("", "VolumeTakesNoWrites VolumeTakesWrites VolumeTakesNoWrites VolumeTakesWrites", false)
		// It waits for a write that is about to end.
		frozen = make(chan struct{})
		meet(nil, frozen)
		time.Sleep(6 * time.Second)
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it left with a write that had not ended")
		default:
		}
		close(frozen)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() { ended <- prober.Run(ctx) }()
		// It does not wait for a disk that hangs.
		frozen = make(chan struct{})
		meet(nil, frozen)
		time.Sleep(6 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(frozen)
	})
}

// TestHungIsFoundWhenItIsAsked: who asks learns of a disk that has stopped to answer since the last write that was tried, and waits for one that is only slow.
func TestHungIsFoundWhenItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := make(chan time.Duration)
		prober := diskguard.NewProber(diskguard.ProbeConfig{Data: "/data", Events: &told{}, Write: func(string) error {
			<-time.After(<-writes)
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- prober.Run(ctx) }()
		writes <- 0
		synctest.Wait()
		for _, takes := range []time.Duration{4 * time.Second, 9 * time.Second} {
			asked, hangs := time.Now(), takes > 5*time.Second
			go func() { writes <- takes }() // begun when it is asked, and not five seconds later
			if last := prober.Hung(ctx); last.Before(asked) == hangs || time.Since(asked) != min(takes, 5*time.Second) {
				t.Errorf("a write that takes %s: it hung at %s, known after %s", takes, last, time.Since(asked))
			}
		}
		cancel()
		if asked := time.Now(); prober.Hung(ctx).Before(asked) {
			t.Error("while the write hangs, and nobody probes any more, it is not known to hang")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-time.After(10 * time.Second) // the write ends, and the next one does not begin
	})
}

// TestWrites: the write that is tried leaves nothing, and a file system that was mounted read-only refuses it.
func TestWrites(t *testing.T) {
	path := t.TempDir()
	if err := unix.Mount("none", path, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot run: only a root that may mount can make a file system read-only: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if err := diskguard.Write(path); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v (%v)", left, err)
	}
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := diskguard.Write(path); !diskguard.Refuses(err) {
		t.Errorf("read-only: %v", err)
	}
	if err := diskguard.Write(filepath.Join(path, "none")); err == nil || diskguard.Refuses(err) || errors.Is(err, unix.EROFS) {
		t.Errorf("nothing there: %v", err)
	}
}
