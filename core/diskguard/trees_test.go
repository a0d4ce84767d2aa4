package diskguard_test

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
)

// The tree of a hostile role: very deep, with links out of it and loops, and files that have no name any more.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	t.Run("deep", func(t *testing.T) {
		t.Parallel()
		onVolume(t, "", []string{"hog", "other"}, func(t *testing.T, v *volume) {
			v.take(v.of("other", "data"), 8<<20)
			v.reserved(true)
			fd, err := unix.Open(v.of("hog"), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			for range 5000 {
				if err := errors.Join(unix.Mkdirat(fd, "d", 0o700), unix.Symlinkat("/", fd, "l"), unix.Symlinkat("..", fd, "up")); err != nil {
					t.Fatal(err)
				}
				down, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				_ = unix.Close(fd)
				fd = down
			}
			file, err := unix.Openat(fd, "data", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(fd)
			piece := make([]byte, 1<<20)
			for {
				if _, err := unix.Write(file, piece); err != nil {
					break
				}
			}
			_ = unix.Close(file)
			v.await("the hog is stopped", stopped("hog"))
		})
	})
	t.Run("nameless", func(t *testing.T) {
		t.Parallel()
		onVolume(t, "", []string{"hog", "other"}, func(t *testing.T, v *volume) {
			v.take(v.of("other", "data"), 8<<20)
			v.reserved(true)
			// A process of its own that holds what it has unlinked.
			hog := exec.Command("/bin/sh", "-c", `exec 3>"$1"; rm "$1"; head -c 100000000 /dev/zero >&3; echo; exec sleep 1000`, "sh", v.of("hog", "data"))
			hog.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
			full, err := hog.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := hog.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = unix.Kill(-hog.Process.Pid, unix.SIGKILL)
				_ = hog.Wait()
			}()
			if _, err := full.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			instances, _ := v.instances.Get()
			runs := append(roles.Instances{}, instances...) // the guard may be looking at those
			runs[0].Process = &plugin.Process{PID: hog.Process.Pid}
			v.instances.Set(runs)
			v.await("the hog is stopped", stopped("hog"))
		})
	})
}
