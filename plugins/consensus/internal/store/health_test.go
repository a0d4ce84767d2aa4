package store_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// pulse is how often a store looks in these tests whether it moves; staysFor is long enough for one that does not to be found out twice.
const (
	pulse    = 100 * time.Millisecond
	staysFor = 25 * pulse
)

// staysWell fails the test if the store says at any time that it hangs.
func staysWell(t *testing.T, s *store.Store) {
	t.Helper()
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for end := time.After(staysFor); ; {
		if err := s.CheckHealth(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ticker.C:
		case <-end:
			return
		}
	}
}

func healthy(t *testing.T) (*store.Store, func()) {
	config := storetest.Config(t, storetest.Directory(t))
	config.PulseInterval = pulse
	return storetest.OpenWith(t, config, storetest.Plan)
}

func awaitHung(t *testing.T, s *store.Store) {
	t.Helper()
	storetest.Eventually(t, "the store is found to hang", func() bool { return s.CheckHealth() != nil })
}

func awaitWell(t *testing.T, s *store.Store) {
	t.Helper()
	storetest.Eventually(t, "the store is well again", func() bool { return s.CheckHealth() == nil })
}

// TestHungDatabase has nobody get at the database any more, as after a deadlock.
func TestHungDatabase(t *testing.T) {
	s, _ := healthy(t)
	// A reader that never ends has the next commit wait, and everybody who comes after it.
	read := s.Server().Backend().ReadTx()
	read.RLock()
	var putting sync.WaitGroup
	putting.Go(func() { put(t, s) })
	awaitHung(t, s)
	t.Log(s.CheckHealth())
	read.RUnlock()
	putting.Wait()
	awaitWell(t, s)
}

// put puts a key. etcd gives a write up after some seconds, which is not what is tested: it is made again.
func put(t *testing.T, s *store.Store) {
	ctx := store.Root(storetest.Context(t))
	for {
		_, err := s.Client().Put(ctx, "/k", "v")
		if err == nil {
			return
		}
		if !errors.Is(err, rpctypes.ErrTimeout) {
			t.Error(err)
			return
		}
	}
}

// TestHungApply has what the members agree upon not be applied, while everybody can read.
func TestHungApply(t *testing.T) {
	s, _ := healthy(t)
	write := s.Server().Backend().BatchTx()
	write.LockOutsideApply()
	var putting sync.WaitGroup
	putting.Go(func() { put(t, s) })
	awaitHung(t, s)
	write.Unlock()
	putting.Wait()
	awaitWell(t, s)
}

// TestWellWithoutQuorum has the other member be away, which is no reason to be started again.
func TestWellWithoutQuorum(t *testing.T) {
	staysWell(t, lonely(t))
}

// TestSlowDisk has the disk not answer for longer than a store may hang: it is waited for.
func TestSlowDisk(t *testing.T) {
	directory := storetest.Directory(t)
	disk := loop(t, directory)
	config := storetest.Config(t, directory)
	config.PulseInterval = pulse
	config.Directory = storetest.Mkdir(t, disk, "data")
	s, stop := storetest.OpenWith(t, config, storetest.Plan)
	defer stop() // before the disk is unmounted

	thaw := freeze(t, disk)
	defer thaw()
	var putting sync.WaitGroup
	putting.Go(func() { put(t, s) }) // which must succeed in the end
	staysWell(t, s)
	thaw()
	putting.Wait()
	awaitWell(t, s)
}

// loop mounts a small file system of its own and returns where.
func loop(t *testing.T, directory string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a disk that can be stopped")
	}
	image, mounted := filepath.Join(directory, "image"), storetest.Mkdir(t, directory, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 192<<20); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, mounted}} {
		if said, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk that can be stopped: %v: %v: %s", command, err, said)
		}
	}
	t.Cleanup(func() {
		if said, err := exec.Command("umount", mounted).CombinedOutput(); err != nil {
			t.Errorf("unmount %s: %v: %s", mounted, err, said)
		}
	})
	return mounted
}

// The requests of ioctl_fifreeze(2), which x/sys/unix does not have.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// freeze has everything that writes to a file system wait until the returned function is called.
func freeze(t *testing.T, mounted string) (thaw func()) {
	t.Helper()
	directory, err := os.Open(mounted)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(directory.Fd()), fiFreeze, 0); err != nil {
		t.Fatalf("freeze %s: %v", mounted, err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(directory.Fd()), fiThaw, 0); err != nil {
			t.Errorf("thaw %s: %v", mounted, err)
		}
		if err := directory.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}
