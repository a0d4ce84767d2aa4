package service_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// change rewrites a file.
func change(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, how(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// damages are what may have become of a member's files.
var damages = map[string]struct {
	file string
	how  func(content []byte) []byte
}{
	"log":                  {file: "etcd/member/wal", how: func(content []byte) []byte { content[1000] ^= 0xff; return content }},
	"database that is cut": {file: "etcd/member/snap/db", how: func(content []byte) []byte { return content[:12288] }},
	"database of nothing":  {file: "etcd/member/snap/db", how: func(content []byte) []byte { return make([]byte, len(content)) }},
	"pages of the database": {file: "etcd/member/snap/db", how: func(content []byte) []byte {
		return append(content[:8192:8192], bytes.Repeat([]byte{0xa5}, len(content)-8192)...)
	}},
}

func (c *cluster) damage(t *testing.T, id, file string, how func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(c.root, id, "data", file)
	if strings.HasSuffix(file, "wal") {
		names, err := filepath.Glob(filepath.Join(path, "*.wal"))
		if err != nil || len(names) == 0 {
			t.Fatalf("the log of %s: %v, %v", id, names, err)
		}
		path = names[len(names)-1]
	}
	change(t, path, how)
}

// TestDamagedMember has a member whose files etcd could not use say which one it is and what to do, and wait. When it is replaced, or its node loses its place and gets it back, it joins anew.
func TestDamagedMember(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, all...)
	for name, damage := range damages {
		before := member(told(t, client), "reeve-3")
		c.nodes["reeve-3"].stop()
		c.damage(t, "reeve-3", damage.file, damage.how)
		back := c.start("reeve-3")
		err := back.form("existing")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), damage.file) || !strings.Contains(err.Error(), "`reeve store replace reeve-3`") {
			t.Fatalf("%s: %v", name, err)
		}
		if said := back.reporter.last(); !strings.HasPrefix(said, "degraded: the data of this node's member of the store cannot be used: ") {
			t.Errorf("%s: the role is %s", name, said)
		}
		if strings.HasSuffix(damage.file, "db") {
			c.replace(client, before, all...)
		} else {
			c.want(client, "reeve-1", "reeve-2")
			c.await(client, "the damaged one goes", settled("reeve-1", "reeve-2"))
			c.want(client, all...)
		}
		if err := back.answered("existing"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.await(client, "a new member votes", func(s *consensusv1.StoreState) bool { return settled(all...)(s) && member(s, "reeve-3") != before })
		c.keptAside("reeve-3")
	}
}

// TestDamagedOnlyMember names a snapshot as the way out where there is nobody else.
func TestDamagedOnlyMember(t *testing.T) {
	c := newCluster(t)
	only := c.start("reeve-1")
	if err := only.form("new"); err != nil {
		t.Fatal(err)
	}
	only.stop()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(c.root, "reeve-1", "data")
			kept := filepath.Join(storetest.Directory(t), "kept")
			if err := os.CopyFS(kept, os.DirFS(path)); err != nil {
				t.Fatal(err)
			}
			c.damage(t, "reeve-1", damage.file, damage.how)
			again := c.start("reeve-1")
			defer again.stop()
			if err := again.form("existing"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), damage.file) || !strings.Contains(err.Error(), "from a snapshot") {
				t.Errorf("%v", err)
			}
			if err := again.form("existing"); status.Code(err) != codes.Unavailable { // as the core does, again and again
				t.Errorf("the second time: %v", err)
			}
			again.stop()
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(path, os.DirFS(kept)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
