package luks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// edge is how many bytes at each end of a device are read.
const edge = 1 << 20

// The labels of an incomplete and of a complete container.
const labelMaking, labelComplete = "reeve-making", "reeve"

// markSize is the size of the mark at the end of a device that is being formatted. cryptsetup fills the key slots with random bytes before it writes
// its header; without the mark nobody could tell who began.
const markSize = 4096

// content is what a device holds.
type content struct {
	// mine: it has a header with this node's UUID. complete: its Format was completed.
	mine, complete bool
	// begun: it has this node's mark. empty: it holds nothing.
	begun, empty bool
	// found describes what it holds.
	found string
}

// resumable reports whether a device may be formatted: it is empty, or holds the rest of this node's interrupted Format.
func (c content) resumable() bool { return c.empty || c.begun || c.mine && !c.complete }

// inspect reads what the device holds.
func (c *container) inspect() (content, error) {
	first, last, _, err := c.read()
	if err != nil {
		return content{}, err
	}
	header, isLUKS := ParseHeader(first)
	switch {
	case isLUKS && header.UUID == c.uuid:
		return content{mine: true, complete: header.Label == labelComplete, found: "the volume of this node"}, nil
	case bytes.HasPrefix(last[len(last)-markSize:], c.mark()):
		return content{begun: true, found: "the beginning of the volume of this node"}, nil
	}
	found := Signature(first, last)
	return content{empty: found == "", found: found}, nil
}

func (c *container) mark() []byte {
	return []byte("reeve: a volume is being made here for " + c.NodeID + "\n")
}

// read returns the first and the last MiB of the device, and its size.
func (c *container) read() (first, last []byte, size int64, err error) {
	if _, err := volume.DeviceNumber(c.Device); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil, 0, &volume.DamagedError{Location: c.Device, Problem: "there is no such device: attach it, or name the right one (volume.luks.device)"}
		}
		return nil, nil, 0, err
	}
	device, err := os.OpenFile(c.Device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, nil, 0, needRootOr(err, "read "+c.Device)
		}
		return nil, nil, 0, fmt.Errorf("luks: %w", err)
	}
	defer func() { _ = device.Close() }()
	if size, err = device.Seek(0, io.SeekEnd); err != nil {
		return nil, nil, 0, fmt.Errorf("luks: %w", err)
	}
	if size < MinSize {
		return nil, nil, 0, &SizeError{Device: c.Device, Size: size}
	}
	first, last = make([]byte, edge), make([]byte, edge)
	for _, part := range []struct {
		content []byte
		at      int64
	}{{first, 0}, {last, size - edge}} {
		if _, err := device.ReadAt(part.content, part.at); err != nil {
			return nil, nil, 0, fmt.Errorf("luks: read %s: %w: the device may be failing", c.Device, err)
		}
	}
	return first, last, size, nil
}

func needRootOr(err error, doing string) error {
	if root := needRoot(doing); root != nil {
		return root
	}
	return fmt.Errorf("luks: %w", err)
}

// SizeError says that a device is too small.
type SizeError struct {
	Device string
	// Size is the device's size in bytes.
	Size int64
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("luks: %s is too small for a volume (%d bytes, at least %d needed): name another device (volume.luks.device)", e.Device, e.Size, MinSize)
}

// Header is the part of a LUKS header that is needed.
type Header struct {
	Version     int
	UUID, Label string
}

// ParseHeader parses the beginning of a device, and reports whether it is a LUKS header (LUKS2 on-disk format specification, 3.1).
func ParseHeader(first []byte) (Header, bool) {
	const versionAt, labelAt, labelSize, uuidAt, uuidSize = 6, 24, 48, 168, 40
	if len(first) < uuidAt+uuidSize || !bytes.HasPrefix(first, []byte("LUKS\xba\xbe")) {
		return Header{}, false
	}
	header := Header{Version: int(binary.BigEndian.Uint16(first[versionAt:])), UUID: text(first[uuidAt : uuidAt+uuidSize])}
	if header.Version == 2 {
		header.Label = text(first[labelAt : labelAt+labelSize])
	}
	return header, true
}

// text is a field's text up to its zero byte.
func text(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return strings.ToValidUTF8(string(before), "?")
}

// Signature describes what the first and the last MiB of a device hold; "" if they are all zeros.
func Signature(first, last []byte) string {
	if header, found := ParseHeader(first); found {
		return fmt.Sprintf("a LUKS container (UUID %.40q)", header.UUID)
	}
	at := func(content []byte, offset int, signature string) bool {
		return offset >= 0 && offset+len(signature) <= len(content) && string(content[offset:offset+len(signature)]) == signature
	}
	for _, known := range []struct {
		offset          int
		signature, name string
	}{
		{0x438, "\x53\xef", "an ext2, ext3 or ext4 file system"}, {0, "XFSB", "an XFS file system"}, {0x10040, "_BHRfS_M", "a Btrfs file system"},
		{0x400, "\x10\x20\xf5\xf2", "an F2FS file system"}, {512, "EFI PART", "a partition table (GPT)"}, {4096, "EFI PART", "a partition table (GPT)"},
		{4086, "SWAPSPACE2", "swap space"}, {512, "LABELONE", "an LVM physical volume"}, {0, "LABELONE", "an LVM physical volume"},
		{4096, "\xfc\x4e\x2b\xa9", "a member of a RAID"}, {0, "\xfc\x4e\x2b\xa9", "a member of a RAID"}, {3, "NTFS    ", "an NTFS file system"},
		{3, "EXFAT   ", "an exFAT file system"}, {82, "FAT32   ", "a FAT file system"}, {54, "FAT1", "a FAT file system"}, {0x8001, "CD001", "an ISO 9660 image"},
		{0, "hsqs", "a SquashFS file system"}, {0, "bcachefs", "a bcachefs file system"}, {510, "\x55\xaa", "a partition table (MBR) or a boot sector"},
	} {
		if at(first, known.offset, known.signature) {
			return known.name
		}
	}
	if at(last, len(last)-512, "EFI PART") {
		return "the second copy of a partition table (GPT)"
	}
	if !zero(first) {
		return "data of an unknown kind in its first MiB"
	}
	if !zero(last) {
		return "data of an unknown kind in its last MiB"
	}
	return ""
}

func zero(content []byte) bool { return len(bytes.Trim(content, "\x00")) == 0 }
