package hostapi_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/inorder"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func digestOf(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

// fileClient is a client of an instance that is granted a file "file" in a directory of its own.
func fileClient(t *testing.T) (client hostv1.HostServiceClient, dir, path string) {
	t.Helper()
	n := newNode(t, nil)
	dir = sharedDir(t)
	path = filepath.Join(dir, "file")
	return n.client(remitOf("role.1", replaceFileGrant(path))), dir, path
}

func replace(t *testing.T, client hostv1.HostServiceClient, path, expected, content string) error {
	t.Helper()
	response, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: expected, Content: []byte(content)})
	if err == nil && response.GetDigest() != digestOf(content) {
		t.Errorf("the digest of the new content is %s", response.GetDigest())
	}
	return err
}

// TestReplaceFile goes through the life of a file.
func TestReplaceFile(t *testing.T) {
	client, dir, path := fileClient(t)
	defer syscall.Umask(syscall.Umask(0o077))

	_, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
	mustRefuse(t, err, codes.NotFound, path)
	mustRefuse(t, replace(t, client, path, digestOf("x"), "new"), codes.Aborted, path, "read it again")
	mustHaveOnly(t, dir)

	if err := replace(t, client, path, "", "one"); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "one")
	if got, want := modeAndOwner(t, path), fmt.Sprintf("100644 %d:%d", os.Geteuid(), os.Getegid()); got != want {
		t.Errorf("the new file is %s, and should be %s", got, want)
	}
	mustRefuse(t, replace(t, client, path, "", "two"), codes.Aborted, path, "exists")
	mustRefuse(t, replace(t, client, path, digestOf("two"), "two"), codes.Aborted, path, "changed")
	mustHold(t, path, "one")

	// Mode and owner stay as they are.
	owner := modeAndOwner(t, path)[len("100644 "):]
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1234, 5678); err != nil {
			t.Fatal(err)
		}
		owner = "1234:5678"
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	read, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
	if err != nil || string(read.GetContent()) != "one" || read.GetDigest() != digestOf("one") {
		t.Fatalf("reading gives %v (%v)", read, err)
	}
	if err := replace(t, client, path, read.GetDigest(), "two"); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "two")
	if got := modeAndOwner(t, path); got != "100640 "+owner {
		t.Errorf("the file is %s, and should be 100640 %s", got, owner)
	}

	// What is so already is not written again.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := replace(t, client, path, digestOf("two"), "two"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written without need (%v)", err)
	}
	if err := replace(t, client, path, digestOf("two"), ""); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "")
	for _, digest := range []string{"sha256:", "md5:" + strings.Repeat("0", 64), strings.ToUpper(digestOf("")), digestOf("")[len("sha256:"):]} {
		mustRefuse(t, replace(t, client, path, digest, "three"), codes.InvalidArgument, "digest")
	}
	mustHaveOnly(t, dir, "file")
}

// TestFilesThatAreRefused: a role reaches nothing but a regular file with one name.
func TestFilesThatAreRefused(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		prepare func(dir, path string) error
		read    codes.Code
		replace codes.Code
		says    string
		root    bool
	}{
		"a link": {func(dir, path string) error { return os.Symlink(filepath.Join(dir, "victim"), path) },
			codes.FailedPrecondition, codes.FailedPrecondition, "symbolic link", false},
		"a link to nothing": {func(dir, path string) error { return os.Symlink(filepath.Join(dir, "none"), path) },
			codes.FailedPrecondition, codes.FailedPrecondition, "symbolic link", false},
		"a hard link": {func(dir, path string) error { return os.Link(filepath.Join(dir, "victim"), path) },
			codes.FailedPrecondition, codes.FailedPrecondition, "hard links", false},
		"a directory": {func(_, path string) error { return os.Mkdir(path, 0o755) },
			codes.FailedPrecondition, codes.FailedPrecondition, "not a regular file", false},
		"a pipe": {func(_, path string) error { return syscall.Mkfifo(path, 0o644) },
			codes.FailedPrecondition, codes.FailedPrecondition, "not a regular file", false},
		"a socket": {func(_, path string) error {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			listener.SetUnlinkOnClose(false)
			return listener.Close()
		}, codes.FailedPrecondition, codes.FailedPrecondition, "not a regular file", false},
		"a device": {func(_, path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
			codes.FailedPrecondition, codes.FailedPrecondition, "not a regular file", true},
		"a program of another user": {func(_, path string) error {
			return errors.Join(os.WriteFile(path, []byte("content"), 0o755), os.Chmod(path, 0o755|os.ModeSetuid))
		}, codes.FailedPrecondition, codes.FailedPrecondition, "set-user-ID", false},
		"a large file": {func(_, path string) error { return os.WriteFile(path, make([]byte, hostapi.MaxFileSize+1), 0o644) },
			codes.FailedPrecondition, codes.FailedPrecondition, "16 MiB", false},
		"a directory that everybody may write": {func(dir, path string) error {
			return errors.Join(os.WriteFile(path, []byte("content"), 0o644), os.Chmod(dir, 0o777|os.ModeSticky))
		}, codes.FailedPrecondition, codes.FailedPrecondition, "chmod", false},
		"another user's directory": {func(dir, path string) error {
			return errors.Join(os.WriteFile(path, []byte("content"), 0o644), os.Chown(dir, otherUser, otherUser))
		}, codes.FailedPrecondition, codes.FailedPrecondition, "belongs to user 65531", true},
		"nothing in another user's directory": {func(dir, _ string) error { return os.Chown(dir, otherUser, otherUser) },
			codes.FailedPrecondition, codes.FailedPrecondition, "belongs to user 65531", true},
		"another user's directory and file": {func(dir, path string) error {
			return errors.Join(os.WriteFile(path, []byte("content"), 0o644), os.Chown(dir, otherUser, otherUser), os.Chown(path, otherUser, otherUser))
		}, codes.OK, codes.OK, "", true},
		"a directory that may not be written": {func(dir, path string) error {
			return errors.Join(os.WriteFile(path, []byte("content"), 0o644), readOnly(dir))
		}, codes.OK, codes.PermissionDenied, "root", false},
	}) {
		t.Run(name, func(t *testing.T) {
			root := os.Geteuid() == 0
			if test.root && !root || test.says == "root" && root {
				t.Skip("this user cannot have it so")
			}
			client, dir, path := fileClient(t)
			victim := filepath.Join(dir, "victim")
			mustWrite(t, victim, "content", 0o644)
			if err := test.prepare(dir, path); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.Chmod(dir, 0o755)
			})
			before := names(t, dir)
			_, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
			mustRefuse(t, err, test.read)
			if err != nil {
				mustRefuse(t, err, test.read, path, test.says)
			}
			for _, expected := range []string{digestOf("content"), ""} {
				err := replace(t, client, path, expected, "new")
				switch {
				case expected == "" && test.read == codes.OK:
					mustRefuse(t, err, codes.Aborted)
				case test.replace == codes.OK:
					mustRefuse(t, err, codes.OK)
				default:
					mustRefuse(t, err, test.replace, path, test.says)
				}
			}
			mustHold(t, victim, "content")
			mustHaveOnly(t, dir, before...)
		})
	}
}

// readOnly takes the right to write a directory away; root is not impressed by it.
func readOnly(dir string) error { return os.Chmod(dir, 0o555) }

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestDirectoriesThatAreRefused holds for both ways to open a directory.
func TestDirectoriesThatAreRefused(t *testing.T) {
	dir := sharedDir(t)
	for _, made := range []error{
		os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755),
		os.Symlink("a", filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "absolute")),
		os.Symlink("b", filepath.Join(dir, "a", "last")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
		os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644),
	} {
		if made != nil {
			t.Fatal(made)
		}
	}
	for path, want := range map[string]error{
		"/":                            nil,
		dir:                            nil,
		filepath.Join(dir, "a", "b"):   nil,
		filepath.Join(dir, "link"):     unix.ELOOP,
		dir + "/link/b":                unix.ELOOP,
		dir + "/absolute/b":            unix.ELOOP,
		dir + "/a/last":                unix.ELOOP,
		dir + "/loop/b":                unix.ELOOP,
		dir + "/none/b":                fs.ErrNotExist,
		dir + "/plain/b":               unix.ENOTDIR,
		"/proc/self/root" + dir + "/a": unix.ELOOP,
	} {
		opened, err := hostapi.OpenDirectory(path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, and should be %v", path, err, want)
		}
		if err != nil {
			continue
		}
		asked, err := os.Stat(path)
		got, err2 := opened.Stat()
		if err != nil || err2 != nil || !os.SameFile(asked, got) {
			t.Errorf("%s opens something else", path)
		}
		if err := opened.Sync(); err != nil {
			t.Errorf("%s: what it opens cannot be synced: %v", path, err)
		}
		_ = opened.Close()
	}
}

// TestMissingDirectory: reading finds nothing, replacing says what to make.
func TestMissingDirectory(t *testing.T) {
	n := newNode(t, nil)
	path := filepath.Join(n.runDir, "none", "file")
	client := n.client(remitOf("role.1", replaceFileGrant(path)))
	_, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
	mustRefuse(t, err, codes.NotFound, path)
	mustRefuse(t, replace(t, client, path, "", "new"), codes.FailedPrecondition, "make "+filepath.Dir(path))
}

// TestNoUpdateIsLost: several roles that each count one up, on what they have read, lose nothing of each other.
func TestNoUpdateIsLost(t *testing.T) {
	const roles, rounds = 4, 25
	n := newNode(t, nil)
	path := filepath.Join(n.runDir, "counter")
	mustWrite(t, path, "0", 0o644)
	var working sync.WaitGroup
	for i := range roles {
		client := n.client(remitOf(fmt.Sprintf("role%d.1", i), replaceFileGrant(path)))
		working.Go(func() {
			for done := 0; done < rounds; {
				read, err := client.ReadFile(t.Context(), &hostv1.ReadFileRequest{Path: path})
				if err != nil {
					t.Error(err)
					return
				}
				count, err := strconv.Atoi(string(read.GetContent()))
				if err != nil {
					t.Error(err)
					return
				}
				_, err = client.ReplaceFile(t.Context(), &hostv1.ReplaceFileRequest{
					Path: path, ExpectedDigest: read.GetDigest(), Content: []byte(strconv.Itoa(count + 1)),
				})
				switch status.Code(err) {
				case codes.OK:
					done++
				case codes.Aborted:
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	mustHold(t, path, strconv.Itoa(roles*rounds))
	mustHaveOnly(t, n.runDir, "counter", "host")
}

// TestRaces: somebody who may write the directory of the granted file swaps the file and the directory for links to another, as fast as it can.
// The other is never read and never written.
func TestRaces(t *testing.T) {
	// As many calls as it takes to get past the swapping a good few times and to be held up by it once, and never more than these.
	const rounds = 5000
	for name, swap := range inorder.Of(map[string]func(dir, victims string) error{
		"the file": func(dir, victims string) error {
			sub := filepath.Join(dir, "sub")
			file, bad, good := filepath.Join(sub, "file"), filepath.Join(sub, "bad"), filepath.Join(sub, "good")
			return errors.Join(
				os.WriteFile(good, nil, 0o644), os.Symlink(filepath.Join(victims, "file"), bad),
				os.Rename(bad, file), os.Rename(good, file))
		},
		"its content": func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("own"), 0o644)
		},
		"the directory": func(dir, _ string) error {
			sub, link := filepath.Join(dir, "sub"), filepath.Join(dir, "link")
			exchange := func() error {
				return unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
			return errors.Join(exchange(), exchange())
		},
	}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			dir, victims := sharedDir(t), sharedDir(t)
			path, victim := filepath.Join(dir, "sub", "file"), filepath.Join(victims, "file")
			mustWrite(t, victim, "victim", 0o640)
			before := modeAndOwner(t, victim)
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink(victims, filepath.Join(dir, "link"))); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, path, "own", 0o644)
			client := n.client(remitOf("role.1", replaceFileGrant(path)))

			stop, stopped := make(chan struct{}), make(chan error, 1)
			go func() {
				for {
					select {
					case <-stop:
						stopped <- nil
						return
					default:
						if err := swap(dir, victims); err != nil {
							stopped <- err
							return
						}
					}
				}
			}()
			outcomes := make(map[codes.Code]int)
			replaced := 0
			for i := 0; i < rounds && (replaced < enough || len(outcomes) < 2); i++ {
				read, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
				outcomes[status.Code(err)]++
				if err != nil {
					continue
				}
				if string(read.GetContent()) == "victim" {
					t.Fatal("the role has read the other file")
				}
				err = replace(t, client, path, read.GetDigest(), fmt.Sprintf("role %d", i))
				outcomes[status.Code(err)]++
				if err == nil {
					replaced++
				}
				if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
					t.Errorf("ends with %v", err)
				}
			}
			close(stop)
			if err := <-stopped; err != nil {
				t.Fatalf("swapping: %v", err)
			}
			mustHold(t, victim, "victim")
			if after := modeAndOwner(t, victim); after != before {
				t.Errorf("the other file was %s and is %s", before, after)
			}
			mustHaveOnly(t, victims, "file")
			if replaced == 0 || len(outcomes) < 2 {
				t.Errorf("the role and the swapping never met: %v", outcomes)
			}
			t.Logf("outcomes: %v", outcomes)
		})
	}
}
