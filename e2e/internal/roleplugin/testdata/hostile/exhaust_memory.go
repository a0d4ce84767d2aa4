package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func takeMemory(a *attempt) {
	const step = 32 << 20
	var held [][]byte
	var err error
	for taken := 0; taken < mostMemory; taken += step {
		var memory []byte
		memory, err = unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			break
		}
		for i := 0; i < step; i += 4096 {
			memory[i] = 1
		}
		held = append(held, memory)
		a.progress("%d MiB", (taken+step)>>20)
	}
	a.try(fmt.Sprintf("take 2 GiB of memory (has %d MiB)", len(held)*step>>20), err)
	for _, memory := range held {
		_ = unix.Munmap(memory)
	}
}

// takeRuntime fills its runtime directory, which is on a tmpfs: in memory.
func takeRuntime(a *attempt) {
	file, err := os.Create(a.runtime("filler"))
	if err != nil {
		a.note("make a file", say(err))
		return
	}
	block := make([]byte, 1<<20)
	written := 0
	for ; written < 1<<10 && err == nil; written++ {
		if _, err = file.Write(block); written%32 == 0 {
			a.progress("%d MiB", written)
		}
	}
	a.try(fmt.Sprintf("put 1 GiB onto the tmpfs (refused after %d MiB)", written), err)
	_ = file.Close()
	_ = os.Remove(a.runtime("filler"))
}

// takeShared makes shared memory that outlives whoever made it.
func takeShared(a *attempt) {
	var ids []int
	var err error
	for len(ids) < 32 {
		var id int
		if id, err = unix.SysvShmGet(unix.IPC_PRIVATE, 32<<20, unix.IPC_CREAT|0o600); err != nil {
			break
		}
		ids = append(ids, id)
		var memory []byte
		if memory, err = unix.SysvShmAttach(id, 0, 0); err != nil {
			break
		}
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		_ = unix.SysvShmDetach(memory)
		a.progress("%d MiB", len(ids)*32)
	}
	for _, id := range ids {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	a.try(fmt.Sprintf("take 1 GiB of shared memory (refused after %d MiB)", len(ids)*32), err)
}

// takePipes fills as many pipes and sockets as it gets: memory of the kernel.
func takePipes(a *attempt) {
	var held []int
	var err error
	block := make([]byte, 1<<20)
	total := 0
	for total < 1<<30 {
		var pipe [2]int
		if err = unix.Pipe2(pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			break
		}
		held = append(held, pipe[:]...)
		_, _ = unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, 1<<20)
		n, _ := unix.Write(pipe[1], block)
		total += max(n, 0)
		if len(held)%64 == 0 {
			a.progress("%d MiB", total>>20)
		}
	}
	for _, fd := range held {
		_ = unix.Close(fd)
	}
	a.try(fmt.Sprintf("put 1 GiB into pipes (refused after %d MiB)", total>>20), err)
}
