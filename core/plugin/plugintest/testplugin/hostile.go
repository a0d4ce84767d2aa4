package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// take takes so many MiB, and uses them.
func take(mebibytes int) {
	var taken [][]byte
	for range mebibytes {
		block := make([]byte, 1<<20)
		for at := 0; at < len(block); at += 4 << 10 {
			block[at] = 1
		}
		taken = append(taken, block)
	}
	if len(taken) > 0 {
		fmt.Fprintln(os.Stderr, "took", len(taken), "MiB")
	}
}

// fork starts children that leave the process group, until it has so many or can start no more, and returns how many there are.
func fork(most int) int {
	for n := range most {
		if child("session") != nil {
			return n
		}
	}
	return most
}

// reach tries to get at what a plugin that is asked for its manifest has no business with, and says on standard error what came of it.
func reach(file string) {
	tell := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "refused %s: %v\n", what, err)
			return
		}
		fmt.Fprintf(os.Stderr, "reached %s\n", what)
	}
	_, err := net.Listen("tcp", "127.0.0.1:0")
	tell("listen", err)
	_, err = net.Dial("udp", "127.0.0.1:9")
	tell("udp", err)
	_, err = os.ReadFile(file)
	tell("read", err)
	tell("write", os.WriteFile(filepath.Join(filepath.Dir(file), "left"), nil, 0o600))
	fmt.Fprintln(os.Stderr, "reached the end")
}

// try does something and says what came of it.
func try(what string) string {
	var err error
	switch what {
	case "read executable":
		_, err = os.ReadFile("/proc/self/exe")
	case "write executable":
		var file *os.File
		if file, err = os.OpenFile("/proc/self/exe", os.O_WRONLY, 0); err == nil {
			_, err = file.Write([]byte("x"))
		}
	case "replace executable":
		var path string
		if path, err = os.Readlink("/proc/self/exe"); err == nil {
			err = os.WriteFile(strings.TrimSuffix(path, " (deleted)"), []byte("x"), 0o755)
		}
	case "heap limit":
		return fmt.Sprint(debug.SetMemoryLimit(-1))
	default:
		err = fmt.Errorf("no such thing to try: %q", what)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}
