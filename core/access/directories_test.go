package access_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestDirectories: each has the provider as owner and the instance's group, follows the provider's user ID and goes with the instance.
func TestDirectories(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	root := os.Geteuid() == 0
	owner := func(uid int, of roles.Instance) string {
		if !root {
			return fmt.Sprintf("40700 %d:%d", os.Geteuid(), os.Getegid())
		}
		return fmt.Sprintf("42710 %d:%d", uid, of.Remit.GID)
	}
	// What an earlier core left: a directory of an instance that is gone, and one of an instance that lives, with the wrong owner and mode.
	leftover := filepath.Join(n.runDir, "access", "gone.7")
	if err := os.MkdirAll(filepath.Join(leftover, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(n.runDir, "access", "role.1"), 0o777); err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid())
	if root {
		uid = providerUID
	}
	provider, role, plain := n.provide("consensus.1", uid, s.conn), user("role.1"), instance("plain.1", &rolev1.RoleManifest{}, "")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, plain, role})
	stop := n.run()
	n.awaitReason(role, "open")
	directory := filepath.Dir(n.socket(role))
	if got, want := modeAndOwner(t, directory), owner(providerUID, role); got != want {
		t.Errorf("the directory is %s, and should be %s", got, want)
	}
	if got := modeAndOwner(t, filepath.Dir(directory)); !strings.HasPrefix(got, "40711 ") {
		t.Errorf("the directory of the directories is %s", got)
	}
	mustNotExist(t, leftover)
	mustNotExist(t, filepath.Join(n.runDir, "access", "plain.1"))

	// The provider comes back as another user: the directory and what was in it stay, and belong to the new one.
	socket := n.socket(role)
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := newStore(t, nil)
	if root {
		uid = otherProviderUID
	}
	provider = n.provide("consensus.2", uid, again.conn)
	// The room may follow the new provider before it sees the instances of it. One that comes with them tells that it has seen them.
	third := user("third.1")
	n.instances.Set(roles.Instances{provider, plain, role, third})
	again.awaitSet(t, role, third)
	n.awaitReason(third, "open")
	n.mustBe(role, "open")
	if got, want := modeAndOwner(t, directory), owner(otherProviderUID, role); got != want {
		t.Errorf("with another provider the directory is %s, and should be %s", got, want)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("what was in the directory: %v", err)
	}

	// An instance that ends takes its directory along, also at the very end.
	second := user("second.1")
	n.instances.Set(roles.Instances{provider, second})
	n.awaitReason(second, "open")
	mustNotExist(t, directory)
	n.instances.Set(roles.Instances{})
	stop()
	mustNotExist(t, filepath.Dir(n.socket(second)))
}

// TestDirectoryThatCannotBeMade: one instance without a directory keeps nobody else from the store, and gets in as soon as it can.
func TestDirectoryThatCannotBeMade(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider, good, bad := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("good.1"), user("bad.1")
	inTheWay := filepath.Dir(n.socket(bad))
	if err := os.MkdirAll(filepath.Dir(inTheWay), 0o755); err != nil {
		t.Fatal(err)
	}
	// A link to a directory that is somebody else's: it must neither be followed nor used.
	victim := sharedDir(t)
	if err := os.Symlink(victim, inTheWay); err != nil {
		t.Fatal(err)
	}
	before := modeAndOwner(t, victim)
	escape := user("escape.1")
	escape.Remit.Name = "../escape.1"
	n.membership.Set(home())
	n.instances.Set(roles.Instances{bad, provider, escape, good})
	n.run()
	n.awaitReason(good, "open")
	states := n.awaitReason(bad, "WAITING")
	if message := states[bad.Remit.InstanceID].GetUnavailable().GetMessage(); !containsAll(message, "directory") {
		t.Errorf("the message does not say what is wrong: %q", message)
	}
	n.mustBe(escape, "WAITING")
	mustNotExist(t, filepath.Join(n.runDir, "escape.1"))
	if after := modeAndOwner(t, victim); after != before {
		t.Errorf("the directory behind the link was %s and is %s", before, after)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	n.awaitReason(bad, "open")
}

// TestTheDirectoryIsMadeAgain: somebody who removes all of it keeps nobody who starts from the store, and what cannot be made ends nothing and is made when it can be.
func TestTheDirectoryIsMadeAgain(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	root := filepath.Join(n.runDir, "access")
	// A file is in the way at first.
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	provider, first, second := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("first.1"), user("second.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, first})
	n.run()
	n.awaitReason(first, "WAITING")
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	n.awaitReason(first, "open")
	// Its socket may still be coming: a directory that is being filled cannot be removed.
	if err := os.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll(root + ".away") // what is made in it at this moment may stay
	// As the launcher does before there is another instance. The room may have done it already.
	if err := os.Mkdir(root, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	n.instances.Set(roles.Instances{provider, first, second})
	n.awaitReason(second, "open")
	for _, instance := range []roles.Instance{first, second} {
		if _, err := os.Stat(filepath.Dir(n.socket(instance))); err != nil {
			t.Error(err)
		}
	}
}

// TestConfiguration: a room that misses something says so.
func TestConfiguration(t *testing.T) {
	n := newNode(t)
	for name, config := range map[string]access.Config{
		"relative":   {RunDir: "run", CoreStart: coreStart, Instances: n.instances, Capabilities: n.capabilities, Membership: n.membership},
		"CoreStart":  {RunDir: n.runDir, Instances: n.instances, Capabilities: n.capabilities, Membership: n.membership},
		"Membership": {RunDir: n.runDir, CoreStart: coreStart, Instances: n.instances, Capabilities: n.capabilities},
	} {
		if err := access.New(config).Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "access: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
