package diskguard

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kind is one of the two things that a volume can run out of.
type kind int

const (
	inBytes kind = iota
	inFiles
)

// amount is so many bytes and so many files, by kind.
type amount [2]int64

// room is what a file system has in all, and what it still takes. One that does not count its files has 0 of them in all. What is kept for root is not left.
type room struct{ all, left amount }

func roomOf(path string) (room, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(path, &found); err != nil {
		return room{}, fmt.Errorf("diskguard: %s: %w", path, err)
	}
	return room{
		all:  amount{int64(found.Blocks) * found.Frsize, int64(found.Files)},
		left: amount{int64(found.Bavail) * found.Frsize, int64(found.Ffree)},
	}, nil
}

const (
	// mostReserved is how large the reserve is, and partReserved the part of a small volume that it is instead.
	mostReserved = 32 << 20
	partReserved = 100
	// mostFilesReserved is how many files are reserved, and scarceFiles how few a file system may take in any case before it is short of them.
	mostFilesReserved = 2048
	scarceFiles       = 64
	// plentyOfFiles is how many files a volume may take still when none are reserved: who makes 100,000 in a second needs 20 s to use them up, and the reserve is made in about 8 s. To make
	// files and to remove them costs some file systems more than everything else that a node does: ext4 without a journal passes over each one that was removed in the last minutes.
	plentyOfFiles = 2 << 20
	page          = 4096
)

// bounds are how much is reserved on a volume, below what it is short, and from what on it has ample room.
type bounds struct{ reserve, short, ample amount }

// limitsOf returns the bounds of a volume. Short is what a reserve of its own would be, which then is still to be had; and room is ample again only when
// there is so much more that making the reserve does not make it short.
func limitsOf(r room) bounds {
	var b bounds
	b.reserve[inBytes] = min(mostReserved, r.all[inBytes]/partReserved) &^ (page - 1)
	b.short[inBytes] = b.reserve[inBytes]
	if r.all[inFiles] > 0 {
		b.reserve[inFiles] = min(mostFilesReserved, r.all[inFiles]/partReserved)
		b.short[inFiles] = max(b.reserve[inFiles], scarceFiles)
	}
	b.ample = amount{8 * b.short[inBytes], 8 * b.short[inFiles]}
	return b
}

// lacks reports whether a kind is short.
func (r room) lacks(k kind, b bounds) bool { return r.left[k] < b.short[k] }

func (r room) short(b bounds) bool { return r.lacks(inBytes, b) || r.lacks(inFiles, b) }

func (r room) ample(b bounds) bool {
	return r.left[inBytes] >= b.ample[inBytes] && r.left[inFiles] >= b.ample[inFiles]
}

// scarcer is of which kind a short volume has too little: files only if it has bytes.
func (r room) scarcer(b bounds) kind {
	if r.lacks(inBytes, b) {
		return inBytes
	}
	return inFiles
}
