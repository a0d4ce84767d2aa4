package fscrypt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// The place of ext4's superblock and of the fields that are read (https://docs.kernel.org/filesystems/ext4/globals.html#super-block).
const (
	superblockAt, superblockSize = 1024, 1024

	blocksLowAt, logBlockSizeAt, magicAt, incompatibleAt, blocksHighAt = 0x4, 0x18, 0x38, 0x60, 0x150

	magic             = 0xEF53
	incompatible64Bit = 0x80
	incompatEncrypt   = 0x10000
)

// Superblock is the part of an ext4 superblock that is needed.
type Superblock struct {
	// Size is the file system's size in bytes.
	Size int64
	// Encrypts says whether its directories can be encrypted.
	Encrypts bool
}

// ParseSuperblock parses the 1024 bytes of a superblock.
func ParseSuperblock(content []byte) (Superblock, error) {
	if len(content) < superblockSize {
		return Superblock{}, fmt.Errorf("its superblock has %d bytes of %d", len(content), superblockSize)
	}
	if binary.LittleEndian.Uint16(content[magicAt:]) != magic {
		return Superblock{}, errors.New("it holds no ext4 file system")
	}
	features := binary.LittleEndian.Uint32(content[incompatibleAt:])
	blocks := uint64(binary.LittleEndian.Uint32(content[blocksLowAt:]))
	if features&incompatible64Bit != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(content[blocksHighAt:])) << 32
	}
	shift := binary.LittleEndian.Uint32(content[logBlockSizeAt:])
	// The largest block of ext4 has 64 KiB.
	if shift > 6 {
		return Superblock{}, fmt.Errorf("its superblock is damaged (blocks of 1024<<%d bytes)", shift)
	}
	if blocks == 0 || blocks > 1<<46 {
		return Superblock{}, fmt.Errorf("its superblock is damaged (%d blocks)", blocks)
	}
	return Superblock{Size: int64(blocks) << (10 + shift), Encrypts: features&incompatEncrypt != 0}, nil
}

// checkImage fails unless the file is a complete ext4 file system with encryption. *volume.DamagedError says what it is instead.
func checkImage(file *os.File) error {
	damaged := func(problem string) error {
		return &volume.DamagedError{Location: file.Name(), Problem: problem}
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	if !info.Mode().IsRegular() {
		return damaged("it is not a regular file: name another path (volume.fscrypt.image.path)")
	}
	content := make([]byte, superblockSize)
	n, err := file.ReadAt(content, superblockAt)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("fscrypt: read %s: %w", file.Name(), err)
	}
	found, err := ParseSuperblock(content[:n])
	switch {
	case err != nil:
		return damaged(err.Error() + ": restore it from a backup, or name another path (volume.fscrypt.image.path)")
	case !found.Encrypts:
		return damaged("its file system has no encryption, so it is not a node's volume: name another path (volume.fscrypt.image.path)")
	case info.Size() < found.Size:
		return damaged(fmt.Sprintf("it is truncated (%d of %d bytes): restore it from a backup", info.Size(), found.Size))
	}
	return nil
}
