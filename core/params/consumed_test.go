package params_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/params"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func openConsumed(t *testing.T, path string) *params.Consumed {
	t.Helper()
	consumed, err := params.OpenConsumed(path)
	if err != nil {
		t.Fatal(err)
	}
	return consumed
}

func mark(t *testing.T, consumed *params.Consumed, parameters *nodev1.Parameters, nodeID string) {
	t.Helper()
	if err := consumed.Mark(parameters, "", nodeID, "c1"); err != nil {
		t.Fatal(err)
	}
}

func TestParametersMakeOneNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumed.json")
	parameters := parsed(t, good)
	consumed := openConsumed(t, path)
	if err := consumed.Check(parameters, ""); err != nil {
		t.Fatalf("before: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("looking has made the file")
	}
	mark(t, consumed, parameters, "n1")
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o400 {
		t.Fatalf("%v %v", before, err)
	}
	for _, consumed := range []*params.Consumed{consumed, openConsumed(t, path)} {
		var used *params.ConsumedError
		if err := consumed.Check(parameters, ""); !errors.As(err, &used) || used.NodeID != "n1" || used.ClusterID != "c1" || used.Path != path {
			t.Errorf("after: %v", err)
		}
	}
	mark(t, openConsumed(t, path), parameters, "n1")
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("what was kept already was written again: %v", err)
	}
	// What does not enrol may change, and the form of the document too; what enrols is another node's.
	same := parsed(t, strings.Replace(good, "127.0.0.1:0\"}", "127.0.0.1:7\"}", 1)+"log: {level: debug}\n")
	if err := consumed.Check(same, ""); err == nil {
		t.Error("with another log level they make a second node")
	}
	for _, change := range []func(*nodev1.Bootstrap){
		func(b *nodev1.Bootstrap) { b.OwnerPublicKey[0]++ },
		func(b *nodev1.Bootstrap) { b.Roles = b.Roles[:1] },
		func(b *nodev1.Bootstrap) { b.Labels = map[string]string{"a": "b"} },
		func(b *nodev1.Bootstrap) { b.RecoveryRecipient = recipient },
	} {
		other := proto.CloneOf(parameters)
		change(other.GetBootstrap())
		if err := consumed.Check(other, ""); err != nil {
			t.Errorf("others are taken for the same: %v", err)
		}
	}
}

func TestOnlySoManyAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumed.json")
	consumed := openConsumed(t, path)
	one := parsed(t, good)
	numbered := func(n int) *nodev1.Parameters {
		parameters := proto.CloneOf(one)
		parameters.GetBootstrap().Labels = map[string]string{"n": fmt.Sprint(n)}
		return parameters
	}
	const many = 300
	for n := range many {
		mark(t, consumed, numbered(n), "n1")
	}
	consumed = openConsumed(t, path)
	if err := consumed.Check(numbered(0), ""); err != nil {
		t.Errorf("the oldest is still kept: %v", err)
	}
	for _, n := range []int{many - 256, many - 1} {
		if err := consumed.Check(numbered(n), ""); err == nil {
			t.Errorf("number %d of %d is not kept", n, many)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 64<<10 {
		t.Errorf("%v %v", info, err)
	}
}

func TestMarkThatCannotBeKept(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "system")
	consumed := openConsumed(t, filepath.Join(directory, "consumed.json"))
	parameters := parsed(t, good)
	if err := consumed.Mark(parameters, "", "n1", "c1"); err == nil || !strings.Contains(err.Error(), directory) {
		t.Errorf("error %v", err)
	}
	if err := consumed.Check(parameters, ""); err != nil {
		t.Errorf("it counts though it was not kept: %v", err)
	}
}

// Every file that is not exactly what was written is an error by its name, at every place where it may have been cut off or changed.
func TestDamagedConsumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumed.json")
	mark(t, openConsumed(t, path), parsed(t, good), "n1")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, content []byte) {
		t.Helper()
		if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o400)); err != nil {
			t.Fatal(err)
		}
		var problem *params.ConsumedFileError
		if _, err := params.OpenConsumed(path); !errors.As(err, &problem) || problem.Path != path || !strings.Contains(err.Error(), "Restore the file") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range content {
		refuse(fmt.Sprintf("the first %d bytes", n), content[:n])
		for bit := range 8 {
			flipped := []byte(string(content))
			flipped[n] ^= 1 << bit
			refuse(fmt.Sprintf("bit %d of byte %d", bit, n), flipped)
		}
	}
	refuse("a newer version", []byte(`{"version": 2, "made": {}}`))
	if _, err := params.OpenConsumed(path); err == nil || !strings.Contains(err.Error(), "it has version 2") {
		t.Errorf("a newer version: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	var problem *params.ConsumedFileError
	if _, err := params.OpenConsumed(path); !errors.As(err, &problem) {
		t.Errorf("a directory: %v", err)
	}
}

// Whatever the file holds, it is refused by its name or is one that was written, which says of these parameters what it said before.
func FuzzConsumed(f *testing.F) {
	path := filepath.Join(f.TempDir(), "consumed.json")
	consumed, err := params.OpenConsumed(path)
	if err != nil {
		f.Fatal(err)
	}
	parameters := parsed(f, good)
	if err := consumed.Mark(parameters, "", "n1", "c1"); err != nil {
		f.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(content), "", "null", "[]", `{"version":1}`, `{"version":2}`, "\x00\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "consumed.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		consumed, err := params.OpenConsumed(path)
		var problem *params.ConsumedFileError
		if err != nil {
			if !errors.As(err, &problem) || problem.Path != path {
				t.Errorf("error %v", err)
			}
			return
		}
		if err := consumed.Mark(parameters, "", "n2", "c1"); err != nil {
			t.Error(err)
		}
		if _, err := params.OpenConsumed(path); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}
