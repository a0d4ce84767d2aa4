package machine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// archive writes an initramfs: a cpio archive in the format "newc", which is all that the kernel reads. It is not compressed, since an emulated processor takes
// longer to unpack it than to read it.
type archive struct {
	out   *bufio.Writer
	inode int
	err   error
	size  int64
}

func newArchive(out io.Writer) *archive { return &archive{out: bufio.NewWriterSize(out, 1<<20)} }

const (
	modeDirectory = 0o040000
	modeFile      = 0o100000
	modeCharacter = 0o020000
)

// directory adds a directory, which must come before what is in it.
func (a *archive) directory(name string) { a.entry(name, modeDirectory|0o755, nil, 0, 0) }

// file adds a file.
func (a *archive) file(name string, mode uint32, content []byte) {
	a.entry(name, modeFile|mode, content, 0, 0)
}

// console adds the device that the kernel opens for the first process.
func (a *archive) console() { a.entry("dev/console", modeCharacter|0o600, nil, 5, 1) }

// copy adds a file of this machine.
func (a *archive) copy(name string, mode uint32, source string) {
	content, err := os.ReadFile(filepath.Clean(source))
	if err != nil && a.err == nil {
		a.err = err
	}
	a.file(name, mode, content)
}

// close ends the archive.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	if a.err != nil {
		return a.err
	}
	return a.out.Flush()
}

func (a *archive) entry(name string, mode uint32, content []byte, major, minor int) {
	a.inode++
	// Inode, mode, user, group, links, time, size, device (2), the device that it is (2), length of the name, checksum.
	header := "070701"
	for _, field := range []int{a.inode, int(mode), 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name) + 1, 0} {
		header += fmt.Sprintf("%08X", field)
	}
	a.write([]byte(header + name + "\x00"))
	a.align()
	a.write(content)
	a.align()
}

func (a *archive) write(content []byte) {
	if a.err != nil {
		return
	}
	n, err := a.out.Write(content)
	a.size += int64(n)
	a.err = err
}

// align fills up to a multiple of four bytes.
func (a *archive) align() { a.write(make([]byte, (4-a.size%4)%4)) }
