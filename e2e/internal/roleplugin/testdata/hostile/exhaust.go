package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What is taken at most, so that a machine that does not refuse it lives on.
const (
	mostMemory    = 2 << 30
	mostProcesses = 2000
	mostFiles     = 100_000
)

var exhaustAttempts = map[string]func(*attempt){
	"exhaust.memory":      takeMemory,
	"exhaust.processes":   takeProcesses,
	"exhaust.threads":     takeThreads,
	"exhaust.descriptors": takeDescriptors,
	"exhaust.disk":        takeDisk,
	"exhaust.inodes":      takeInodes,
	"exhaust.runtime":     takeRuntime,
	"exhaust.shared":      takeShared,
	"exhaust.queues":      takeQueues,
	"exhaust.inotify":     takeInotify,
	"exhaust.pipes":       takePipes,
	"exhaust.stderr":      func(a *attempt) { flood(a, os.Stderr) },
	"exhaust.stdout":      func(a *attempt) { flood(a, os.Stdout) },
	"exhaust.cpu":         takeProcessor,
}

// progress notes how far an attempt has come in a file: it may not live to tell.
func (a *attempt) progress(format string, arguments ...any) {
	_ = os.WriteFile(a.data("progress"), fmt.Appendf(nil, format, arguments...), 0o644)
}

func takeDescriptors(a *attempt) {
	var err error
	var held []int
	for len(held) < mostFiles {
		var fd int
		if fd, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		held = append(held, fd)
	}
	for _, fd := range held {
		_ = unix.Close(fd)
	}
	a.try(fmt.Sprintf("open 100,000 files (refused after %d)", len(held)), err)
	// In flight in sockets they count for the user.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	sent := 0
	for ; sent < 20000 && err == nil; sent++ {
		err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(pair[1]), nil, 0)
	}
	a.try(fmt.Sprintf("have 20,000 descriptors in flight (refused after %d)", sent), err)
}

// takeDisk fills its own directory until it is refused.
func takeDisk(a *attempt) {
	file, err := os.Create(a.data("filler"))
	if err != nil {
		a.note("make a file", say(err))
		return
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	written := 0
	deadline := time.Now().Add(15 * time.Second)
	for ; written < 4<<10 && err == nil && time.Now().Before(deadline); written++ {
		if _, err = file.Write(block); err == nil && written%16 == 0 {
			err = file.Sync()
			a.progress("%d MiB", written)
		}
	}
	// The last bytes too.
	for err == nil || errors.Is(err, unix.ENOSPC) {
		if _, smaller := file.Write(block[:4096]); smaller != nil {
			err = smaller
			break
		}
	}
	a.result.Values["written"] = strconv.Itoa(written)
	a.note(fmt.Sprintf("fill the disk (refused after %d MiB)", written), fmt.Sprint(err))
	time.Sleep(3 * time.Second) // it keeps what it has, for as long as it is allowed to live
}

func takeInodes(a *attempt) {
	directory := a.data("many")
	_ = os.Mkdir(directory, 0o755)
	made := 0
	var err error
	deadline := time.Now().Add(12 * time.Second)
	for ; made < mostFiles && err == nil && time.Now().Before(deadline); made++ {
		var fd int
		if fd, err = unix.Open(filepath.Join(directory, strconv.Itoa(made)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
			_ = unix.Close(fd)
		}
	}
	a.result.Values["made"] = strconv.Itoa(made)
	a.note(fmt.Sprintf("make files (refused after %d)", made), fmt.Sprint(err))
	time.Sleep(3 * time.Second)
	_ = os.RemoveAll(directory)
}

// takeQueues makes message queues, which outlive whoever made them, where all of the machine sees them.
func takeQueues(a *attempt) {
	var err error
	made := 0
	for ; made < 300 && err == nil; made++ {
		name := fmt.Sprintf("hostile-%d", made)
		var fd uintptr
		var errno unix.Errno
		fd, _, errno = unix.Syscall6(unix.SYS_MQ_OPEN, text(name), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
		if errno != 0 {
			err = errno
			break
		}
		_ = unix.Close(int(fd))
	}
	for n := range made {
		_ = system(unix.SYS_MQ_UNLINK, text(fmt.Sprintf("hostile-%d", n)))
	}
	a.try(fmt.Sprintf("make 300 message queues (refused after %d)", made), err)
}

func takeInotify(a *attempt) {
	var held []int
	var err error
	for len(held) < 5000 {
		var fd int
		if fd, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
		held = append(held, fd)
	}
	a.try(fmt.Sprintf("have 5,000 inotify instances (refused after %d)", len(held)), err)
	time.Sleep(500 * time.Millisecond)
	for _, fd := range held {
		_ = unix.Close(fd)
	}
}

// flood writes 300 MB of lines. Whether somebody keeps them all is for the test to judge.
func flood(a *attempt, to *os.File) {
	line := make([]byte, 1000)
	for i := range line {
		line[i] = 'x'
	}
	line[len(line)-1] = '\n'
	var block []byte
	for range 1000 {
		block = append(block, line...)
	}
	written := 0
	deadline := time.Now().Add(8 * time.Second)
	var err error
	for ; written < 300 && err == nil && time.Now().Before(deadline); written++ {
		// What is refused while there is no room is tried again later.
		if _, err = to.Write(block); errors.Is(err, unix.ENOSPC) {
			err = nil
		}
	}
	a.note(fmt.Sprintf("write %d MB to %s", written, to.Name()), fmt.Sprint(err))
}
