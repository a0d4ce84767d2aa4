package hostapi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/core/hostapi"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// The parts of an access list as the kernel keeps it (version 2): the owner, a user, the group, a group, the mask, others.
const (
	listVersion = "\x02\x00\x00\x00"
	nobody      = "\xff\xff\xff\xff"
)

func accessList(owner, user, group, mask, others byte) string {
	of := func(tag, permissions byte, id string) string { return string([]byte{tag, 0, permissions, 0}) + id }
	return listVersion + of(0x01, owner, nobody) + of(0x02, user, "\xd2\x04\x00\x00") + of(0x04, group, nobody) + of(0x10, mask, nobody) + of(0x20, others, nobody)
}

// setAttribute skips the test where the file system has no such attributes.
func setAttribute(t *testing.T, path, name, value string) {
	t.Helper()
	err := unix.Setxattr(path, name, []byte(value), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this cannot be tested here: the file system has no attribute %s", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func attributeOf(t *testing.T, path, name string) string {
	t.Helper()
	value := make([]byte, 1<<10)
	n, err := unix.Getxattr(path, name, value)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(value[:n])
}

// TestAttributesStay: the new file has the access list, label and attributes of the former, and none that its directory gives to new files.
func TestAttributesStay(t *testing.T) {
	for _, test := range []struct {
		name       string
		attributes map[string]string
		mode       os.FileMode
		root       bool
	}{
		{"an access list", map[string]string{"system.posix_acl_access": accessList(6, 0, 4, 4, 4)}, 0o644, false},
		{"one that lets others in", map[string]string{"system.posix_acl_access": accessList(6, 4, 0, 4, 0)}, 0o640, false},
		{"attributes of users", map[string]string{"user.origin": "installer", "user.empty": ""}, 0o600, false},
		{"what only root gives", map[string]string{"trusted.mark": "x", "user.origin": "installer"}, 0o444, true},
		{"none", nil, 0o640, false},
		{"of the owner alone", nil, 0o400, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("this user cannot have it so")
			}
			client, dir, path := fileClient(t)
			mustWrite(t, path, "one", test.mode)
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			for name, value := range test.attributes {
				setAttribute(t, path, name, value)
			}
			// What the directory gives to new files.
			setAttribute(t, dir, "system.posix_acl_default", accessList(7, 7, 7, 7, 7))
			before := modeAndOwner(t, path)
			if err := replace(t, client, path, digestOf("one"), "two"); err != nil {
				t.Fatal(err)
			}
			mustHold(t, path, "two")
			if after := modeAndOwner(t, path); after != before {
				t.Errorf("the file was %s, and is %s", before, after)
			}
			for _, name := range []string{"system.posix_acl_access", "user.origin", "user.empty", "trusted.mark"} {
				if got, want := attributeOf(t, path, name), test.attributes[name]; got != want {
					t.Errorf("the attribute %s is %q, and was %q", name, got, want)
				}
			}
			mustHaveOnly(t, dir, "file")
		})
	}
}

// TestImmutable: what holds for root too is not answered by "run the core as root".
func TestImmutable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this cannot be tested here: only root makes a file immutable")
	}
	for _, what := range []string{"file", "."} {
		t.Run(what, func(t *testing.T) {
			client, dir, path := fileClient(t)
			mustWrite(t, path, "one", 0o644)
			setFlags(t, filepath.Join(dir, what), unix.STATX_ATTR_IMMUTABLE)
			read, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
			if err != nil || string(read.GetContent()) != "one" {
				t.Errorf("reading gives %v (%v)", read, err)
			}
			err = replace(t, client, path, digestOf("one"), "two")
			mustRefuse(t, err, codes.FailedPrecondition, path, "immutable", "chattr -ia")
			mustHold(t, path, "one")
			mustHaveOnly(t, dir, "file")
		})
	}
}

// setFlags sets flags of a file (chattr) for as long as the test runs, or skips it.
func setFlags(t *testing.T, path string, flags int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	t.Cleanup(func() { _ = errors.Join(set(0), file.Close()) })
	if err := set(flags); err != nil {
		t.Skipf("this cannot be tested here: the file system makes nothing immutable: %v", err)
	}
}

// TestLargeFile: a file is read and replaced in parts, and its block lists do not keep a role from its own lines.
func TestLargeFile(t *testing.T) {
	client, dir, path := fileClient(t)
	large := strings.Repeat("0.0.0.0 blocked.example\n", 3<<20/24)
	mustWrite(t, path, large, 0o644)
	var content strings.Builder
	digest := ""
	for offset, size := uint64(0), uint64(1); offset < size; offset = uint64(content.Len()) {
		read, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path, Offset: offset})
		if err != nil || len(read.GetContent()) == 0 || len(read.GetContent()) > hostapi.MaxContent {
			t.Fatalf("reading from %d on gives %d bytes (%v)", offset, len(read.GetContent()), err)
		}
		content.Write(read.GetContent())
		digest, size = read.GetDigest(), read.GetSize()
	}
	if content.String() != large || digest != digestOf(large) {
		t.Fatalf("read %d bytes with the digest %s", content.Len(), digest)
	}
	part := func(offset, length uint64, content, expected string) error {
		_, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{
			Path: path, ExpectedDigest: expected, Content: []byte(content), Part: &hostv1.FilePart{Offset: offset, Length: length},
		})
		return err
	}
	size := uint64(len(large))
	if err := part(size, 0, "192.0.2.1\tnode\n", digest); err != nil {
		t.Fatal(err)
	}
	large += "192.0.2.1\tnode\n"
	mustHold(t, path, large)
	if err := part(0, 24, "", digestOf(large)); err != nil {
		t.Fatal(err)
	}
	large = large[24:]
	mustHold(t, path, large)
	for _, wrong := range []struct{ offset, length uint64 }{{uint64(len(large)) + 1, 0}, {0, uint64(len(large)) + 1}, {1, ^uint64(0)}} {
		mustRefuse(t, part(wrong.offset, wrong.length, "x", digestOf(large)), codes.InvalidArgument, path, fmt.Sprint(len(large)))
	}
	mustRefuse(t, part(0, 0, "x", digest), codes.Aborted, "changed")
	mustHold(t, path, large)

	// It does not grow beyond what is read.
	mustWrite(t, path, strings.Repeat("x", hostapi.MaxFileSize), 0o644)
	mustRefuse(t, part(0, 0, "x", digestOf(strings.Repeat("x", hostapi.MaxFileSize))), codes.InvalidArgument, path, "limit")
	mustHaveOnly(t, dir, "file")
}
