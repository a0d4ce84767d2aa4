package diskguard

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/plugin"
)

// maxDescriptors is how many descriptors of a role's processes are looked at.
const maxDescriptors = 100_000

// nameless adds up the files of the volume that processes of a role's process group have open and that have no name any more: they take room, and are in no
// directory. Where the core may not look into the processes, there are none.
func nameless(ctx context.Context, leader plugin.Process, data string) (found amount) {
	var volume unix.Stat_t
	if unix.Stat(data, &volume) != nil {
		return amount{}
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return amount{}
	}
	seen, looked := make(map[uint64]bool), 0
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil || ctx.Err() != nil {
			continue
		}
		if group, err := unix.Getpgid(pid); err != nil || group != leader.PID {
			continue
		}
		directory, err := os.Open("/proc/" + process.Name() + "/fd")
		if err != nil {
			continue
		}
		names, _ := directory.Readdirnames(maxDescriptors - looked) // those that were read are better than none
		for _, name := range names {
			looked++
			// Only what is said to be deleted is asked, so that no other file system is.
			link := directory.Name() + "/" + name
			target, err := os.Readlink(link)
			if err != nil || !strings.HasSuffix(target, " (deleted)") || strings.HasPrefix(target, "/memfd:") {
				continue
			}
			var stat unix.Stat_t
			if unix.Stat(link, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 0 || stat.Dev != volume.Dev || seen[stat.Ino] {
				continue
			}
			seen[stat.Ino] = true
			found[inFiles]++
			found[inBytes] += stat.Blocks * 512
		}
		_ = directory.Close()
		if looked >= maxDescriptors {
			break
		}
	}
	return found
}
