package unseal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Whoever has the disk of a member and edits what is not encrypted of its configuration has it, once it is recovered, neither hand its key to a stranger's
// curator nor be anything but the member that it was.
func TestTheHeadOfAMemberIsNotBelieved(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, true)
	b.registers(t)
	first := b.up(t).Configuration
	b.committed(t)
	b.reboot(t)
	content, err := os.ReadFile(b.layout.Configuration())
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Version int
		Content struct {
			// In the order of the fields that are written, or it would be refused for that alone.
			Open struct {
				Sealer            string             `json:"sealer"`
				ClusterID         string             `json:"cluster_id"`
				NodeID            string             `json:"node_id"`
				Owner             []byte             `json:"owner_public_key"`
				RecoveryRecipient string             `json:"recovery_recipient,omitempty"`
				VolumeKind        string             `json:"volume_kind"`
				Location          string             `json:"volume_location,omitempty"`
				Phase             seal.Phase         `json:"phase"`
				CUKSources        []string           `json:"cuk_sources,omitempty"`
				StoreFormed       bool               `json:"store_formed,omitempty"`
				Registration      *seal.Registration `json:"registration,omitempty"`
			} `json:"open"`
			Key     json.RawMessage `json:"key"`
			Secrets []byte          `json:"secrets"`
		}
	}
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	open := &document.Content.Open
	open.Phase, open.Owner = seal.Committing, bytes.Repeat([]byte{6}, 32)
	open.Registration = &seal.Registration{TicketID: "of a stranger", CAPins: [][]byte{bytes.Repeat([]byte{6}, 32)}, Curators: []string{"192.0.2.66:7400"}}
	if err := storage.WriteDocument(b.layout.Configuration(), document.Version, document.Content, 0o400); err != nil {
		t.Fatal(err)
	}
	if head, err := seal.NewStore(b.layout.Configuration(), b.tpm).Head(); err != nil || head.Phase != seal.Committing {
		t.Fatalf("the head cannot be read, and the test proves nothing: %+v, %v", head, err)
	}
	b.byRecovery(t)
	for range 2 {
		c := mustOpen(t, b).Configuration
		if c.NodeID() != first.NodeID() || c.Phase != seal.Member || !bytes.Equal(c.Owner, make([]byte, 32)) || !c.StoreFormed ||
			!bytes.Equal(c.Registration.CAPins[0], bytes.Repeat([]byte{9}, 32)) || c.Registration.Curators[0] != "192.0.2.1:7400" {
			t.Errorf("recovered %+v", c)
		}
		if err := b.room.UseCUK(func([]byte) error { return nil }); err == nil {
			t.Error("a member has the cluster's half of its key to give away")
		}
		b.heard(t)
		b.reboot(t)
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever has the disk and names another recovery key wherever the node's own is named that is not encrypted does not have the next recovery file written for it.
func TestTheRecoveryKeyOfTheDiskIsNotBelieved(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	first := b.up(t).Configuration
	own := first.RecoveryRecipient
	content := b.recovered(t)
	b.reboot(t)
	stranger, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	r, err := recovery.Parse(bytes.Clone(content))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Destroy()
	if err := errors.Join(recovery.Write(b.layout.Recovery(), stranger.Recipient().String(), r), os.Remove(b.layout.Configuration())); err != nil {
		t.Fatal(err)
	}
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" })
	answer, err := b.unlock(t, content)
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(answer.GetNotes(), "\n"); !strings.Contains(said, own) || !strings.Contains(said, stranger.Recipient().String()) {
		t.Errorf("that the disk names another recovery key is not said: %q", said)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	if head, err := seal.NewStore(b.layout.Configuration(), seal.File{}).Head(); err != nil || head.RecoveryRecipient != own {
		t.Errorf("the recovery key is that of %+v, and was %s (%v)", head, own, err)
	}
	if _, recipient, err := recovery.Read(b.layout.Recovery()); err != nil || recipient != own {
		t.Errorf("the next recovery file is for %s, want %s (%v)", recipient, own, err)
	}
}

// A member of which only the recovery file is left knows its cluster, and that this has its half of the key.
func TestAMemberIsRecoveredWithItsCluster(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	cuk := b.committed(t)
	b.reboot(t)
	if err := os.Remove(b.layout.Configuration()); err != nil {
		t.Fatal(err)
	}
	b.byRecovery(t)
	c := mustOpen(t, b).Configuration
	if c.Phase != seal.Member || c.Registration == nil || !bytes.Equal(c.Registration.CAPins[0], bytes.Repeat([]byte{9}, 32)) || len(c.Owner) != 32 {
		t.Fatalf("recovered %+v", c)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{Cuk: true}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "the cluster holds") {
		t.Errorf("another CUK, of which the cluster knows nothing: %v", err)
	}
	if err := b.room.Allow(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	b.room.SetJoin(func(context.Context, *seal.Configuration, *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
		return &clusterv1.JoinResponse{Cuk: bytes.Clone(cuk)}, nil
	})
	if err := b.open().wait(t); err != nil {
		t.Error(err)
	}
}

// A node that registers and of which only the recovery file is left asks the cluster of its ticket again.
func TestRegisteringIsRecoveredFromNothingElse(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	first := b.up(t).Configuration
	b.reboot(t)
	if err := os.Remove(b.layout.Configuration()); err != nil {
		t.Fatal(err)
	}
	b.byRecovery(t)
	c := mustOpen(t, b).Configuration
	if c.Phase != seal.Registering || c.NodeID() != first.NodeID() || c.StoreFormed || c.Registration.TicketID != "0123456789abcdef" {
		t.Errorf("recovered %+v", c)
	}
	if cuk := b.committed(t); len(cuk) != 32 {
		t.Errorf("a CUK of %d bytes", len(cuk))
	}
}

// The recovery file says that the node is a member before anything else does, and by what it finds its cluster as soon as that has changed.
func TestTheRecoveryFileSaysFirstThatTheNodeIsAMember(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	recovered := func() *recovery.Recovered {
		t.Helper()
		r, err := recovery.Parse(b.recovered(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Destroy)
		return r
	}
	if r := recovered(); len(r.Owner) != 0 || r.Registration == nil {
		t.Errorf("before: %+v", r)
	}
	// Of a core that found the volume open, the CUK is known from the configuration only.
	b.kill(t)
	b.up(t)
	pins := [][]byte{bytes.Repeat([]byte{8}, 32)}
	if err := b.room.Update(t.Context(), func(c *seal.Configuration) {
		c.Registration = &seal.Registration{TicketID: "another", CAPins: pins, Curators: []string{"192.0.2.2:7400"}}
	}); err != nil {
		t.Fatal(err)
	}
	if r := recovered(); r.Registration.Curators[0] != "192.0.2.2:7400" || !bytes.Equal(r.Registration.CAPins[0], pins[0]) {
		t.Errorf("with another ticket: %+v", r.Registration)
	}
	join := func() error {
		return b.room.Update(t.Context(), func(c *seal.Configuration) {
			c.Phase, c.CUK, c.Ticket, c.Owner = seal.Member, nil, nil, make([]byte, 32)
		})
	}
	b.stopAt, b.stopIn = checkpoint.WriteRecovery, 1
	if err := join(); !errors.Is(err, errStopped) {
		t.Fatalf("%v", err)
	}
	b.stopAt = ""
	if head, err := seal.NewStore(b.layout.Configuration(), seal.File{}).Head(); err != nil || head.Phase != seal.Registering || len(head.Owner) != 0 {
		t.Errorf("a member by the configuration alone: %+v, %v", head, err)
	}
	b.reboot(t)
	b.up(t)
	if err := join(); err != nil {
		t.Fatal(err)
	}
	if r := recovered(); len(r.Owner) != 32 {
		t.Errorf("after: %+v", r)
	}
}

// What keeps the volume of a node that registers from being opened may pass: it is tried again by the node itself, and meanwhile its owner may open it.
func TestRegisteringIsOpenedPatiently(t *testing.T) {
	for _, owner := range []bool{false, true} {
		b := newBench(t, directory(t), storage.LUKS, false)
		b.registers(t)
		b.up(t)
		b.reboot(t)
		b.disk.set(func(d *fakeDisk) { d.late = errors.New("the device is not there yet") })
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		b.room.SetJoin(func(context.Context, *seal.Configuration, *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
			return nil, &enrol.RefusedError{Code: codes.FailedPrecondition, Message: "it is no member yet"}
		})
		o := b.open()
		b.until(t, "waits", func(s *clusterv1.StorageStatus) bool {
			return strings.Contains(s.GetProblem(), "tried again") && strings.Contains(s.GetProblem(), "not there yet")
		})
		b.disk.set(func(d *fakeDisk) { d.late = nil })
		if owner {
			// The node itself may have been sooner.
			if _, err := b.unlock(t, b.recovered(t)); err != nil && status.Code(err) != codes.FailedPrecondition {
				t.Error(err)
			}
		}
		if err := o.wait(t); err != nil {
			t.Fatal(err)
		}
		if c := o.opened.Configuration; c.Phase != seal.Registering {
			t.Errorf("opened %+v", c)
		}
	}
}
