package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// hostsfileComesAndGoes disables and enables the role, and changes the file meanwhile.
func hostsfileComesAndGoes(t *testing.T, c *devcluster.Cluster, node string) {
	t.Helper()
	file := c.Path("hosts")
	read := func() string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	awaitBlock := func(there bool) {
		eventually.True(t, patience, fmt.Sprintf("the node in the hosts file: %t", there), func() (bool, string) {
			content := read()
			return strings.Contains(content, node) == there, content
		})
	}
	awaitBlock(true)
	if !strings.Contains(read(), "127.0.0.1\tlocalhost\n") {
		t.Errorf("the role has lost lines that were there before: %q", read())
	}
	c.MustReeve(t, "node", "role", "remove", node, "hostsfile")
	if status := c.Status(t); status.Role("hostsfile").Role != "" {
		t.Errorf("hostsfile was removed and is still there: %s", status)
	}
	awaitBlock(false)

	// Lines that nobody would write so: without a newline at the end, too.
	odd := "# mine\r\n\n10.0.0.1\t a  b\t# c\n\x80\xff not UTF-8\n   \n127.0.0.1\tlocalhost\nlast line"
	if err := os.WriteFile(file, []byte(odd), 0o644); err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"path":`+quote(file)+`}`))
	awaitBlock(true)
	for line := range strings.SplitSeq(odd, "\n") {
		if !strings.Contains("\n"+read()+"\n", "\n"+line+"\n") {
			t.Errorf("the line %q is not in the file any more: %q", line, read())
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode of the file was changed: %v, %v", info.Mode(), err)
	}
	// Another program replaces the file without the block, again and again. The role is told of it each time: otherwise it looks once in a minute, and does not come to three times within one.
	eventually.True(t, patience, "the block is put back at once, and it is said that another program keeps rewriting the file", func() (bool, string) {
		if strings.Contains(read(), node) {
			replaceFile(t, file, odd)
		}
		status := c.Status(t)
		role := status.Role("hostsfile")
		return role.State == "Degraded" && strings.Contains(role.Reason, "keeps rewriting "+file), status.String()
	})
	awaitBlock(true)
	t.Run("a block that stays", func(t *testing.T) { blockThatStays(t, c, node) })
	c.MustReeve(t, "node", "role", "remove", node, "hostsfile")
	awaitBlock(false)
	if got := read(); got != odd+"\n" {
		t.Errorf("with the role removed the file is %q, want %q as it was before, with a newline at its end", got, odd)
	}
	c.MustReeve(t, "node", "role", "add", node, "hostsfile", "--config", configuration(t, c, `{"path":`+quote(file)+`}`))
	awaitBlock(true)
}

// replaceFile replaces a file as editors do, by one of the same owner.
func replaceFile(t *testing.T, file, content string) {
	t.Helper()
	var former unix.Stat_t
	err := unix.Stat(file, &former)
	if err := errors.Join(err, os.WriteFile(file+".new", []byte(content), 0o644), os.Chown(file+".new", int(former.Uid), int(former.Gid)), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// blockThatStays takes the role away while nobody can change the hosts file: that is said. Afterwards the node has the role again, with the configuration that it has by default: as its
// README says, the block goes when the role is removed once more.
func blockThatStays(t *testing.T, c *devcluster.Cluster, node string) {
	file, err := os.Open(c.Path("hosts"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	before, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = set(before | unix.STATX_ATTR_IMMUTABLE)
	}
	if err != nil {
		t.Skipf("no file can be made immutable: %v", err)
	}
	defer func() { _ = set(before) }()
	result := c.Reeve(t, "node", "role", "remove", node, "hostsfile")
	if err := set(before); err != nil {
		t.Fatal(err)
	}
	if result.Code != 1 || !strings.Contains(result.Stderr, "the block was not removed") || !strings.Contains(result.Stderr, "immutable") {
		t.Errorf("the block stays, and that is not said: %s", result)
	}
	if role := c.Status(t).Role("hostsfile"); role.State != "Stopped" || !strings.Contains(role.Reason, "the block was not removed") {
		t.Errorf("the node does not say that the block was not removed: %+v", role)
	}
	c.MustReeve(t, "node", "role", "add", node, "hostsfile")
}
