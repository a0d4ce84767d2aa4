package diskguard

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// room is what a file system has.
type room struct {
	// size and free are bytes; what is kept for root is not free.
	size, free int64
	// allFiles is how many files it can have, 0 if it does not say, and files how many more it takes.
	allFiles, files int64
	device          uint64
}

func roomOf(path string) (room, error) {
	var found unix.Statfs_t
	var at unix.Stat_t
	if err := unix.Statfs(path, &found); err != nil {
		return room{}, fmt.Errorf("diskguard: %s: %w", path, err)
	}
	if err := unix.Stat(path, &at); err != nil {
		return room{}, fmt.Errorf("diskguard: %s: %w", path, err)
	}
	return room{
		size: int64(found.Blocks) * found.Frsize, free: int64(found.Bavail) * found.Frsize,
		allFiles: int64(found.Files), files: int64(found.Ffree), device: at.Dev,
	}, nil
}

const (
	// mostReserved is how large the reserve is, and partReserved the part of a small volume that it is instead.
	mostReserved = 32 << 20
	partReserved = 100
	// mostFilesReserved is how many files are reserved, and scarceFiles how few a file system may take in any case before it is short of them.
	mostFilesReserved = 2048
	scarceFiles       = 64
)

// bounds are what is short on a volume, and what is ample: of bytes, and of files where they are counted.
type bounds struct {
	reserve, short, ample             int64
	reserveFiles, fewFiles, manyFiles int64
}

// limitsOf returns the bounds of a volume. Short is what a reserve of its own would be, which then is still to be had; and room is ample again only when
// there is so much more that making the reserve does not make it short.
func limitsOf(r room) bounds {
	reserve := min(mostReserved, r.size/partReserved) &^ (page - 1)
	b := bounds{reserve: reserve, short: reserve, ample: 8 * reserve}
	if r.allFiles > 0 {
		b.reserveFiles = min(mostFilesReserved, r.allFiles/partReserved)
		b.fewFiles = max(b.reserveFiles, scarceFiles)
		b.manyFiles = 8 * b.fewFiles
	}
	return b
}

const page = 4096

func (r room) short(b bounds) bool {
	return r.free < b.short || r.fewFiles(b)
}

func (r room) fewFiles(b bounds) bool { return r.files < b.fewFiles }

func (r room) ample(b bounds) bool {
	return r.free >= b.ample && r.files >= b.manyFiles
}

// shortOfFiles reports whether it is files that are short, and not bytes.
func (r room) shortOfFiles(b bounds) bool { return r.free >= b.short }
