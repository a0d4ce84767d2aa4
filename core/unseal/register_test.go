package unseal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

const otherCluster = "00112233445566778899aabbccddeeff"

// registers has the machine come into a cluster that there is, by a ticket in a file.
func (b *bench) registers(t T) (ticketFile string) {
	t.Helper()
	text, err := ticket.Encode(&clusterv1.TicketText{
		TicketId: "0123456789abcdef", Secret: bytes.Repeat([]byte{7}, 32), ClusterId: otherCluster, CaPins: [][]byte{bytes.Repeat([]byte{9}, 32)},
		Curators: []string{"192.0.2.1:7400"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ticketFile = filepath.Join(filepath.Dir(b.layout.System), "ticket")
	if err := os.WriteFile(ticketFile, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{
		From: &nodev1.Register_TicketFile{TicketFile: ticketFile}, RecoveryRecipient: b.identity.Recipient().String(),
	}}
	return ticketFile
}

// committed is what membership does when the cluster has taken the node in. It returns the half of the key that the cluster has from then on.
func (b *bench) committed(t T) (cuk []byte) {
	t.Helper()
	if err := b.room.UseCUK(func(secret []byte) error { cuk = bytes.Clone(secret); return nil }); err != nil {
		t.Fatal(err)
	}
	err := b.room.Update(context.Background(), func(c *seal.Configuration) {
		c.Phase, c.CUK, c.Ticket, c.Owner = seal.Member, nil, nil, make([]byte, 32)
	})
	if err != nil {
		t.Fatal(err)
	}
	return cuk
}

// A node that registers is bound to the cluster of its ticket, needs the ticket's file once, and opens its volume by itself until the cluster has its half of the
// key; from then on the cluster gives it.
func TestRegistering(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	file := b.registers(t)
	first := b.up(t).Configuration
	if first.ClusterID != otherCluster || first.Phase != seal.Registering || first.Registration == nil || first.Registration.Curators[0] != "192.0.2.1:7400" ||
		len(first.Owner) != 0 || first.CUK != nil || first.Ticket != nil {
		t.Errorf("opened %+v", first)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(b.layout.Configuration()); err != nil || bytes.Contains(content, bytes.Repeat([]byte{7}, 32)) {
		t.Errorf("the ticket's secret lies open: %v", err)
	}
	b.reboot(t)
	if again := b.up(t).Configuration; again.NodeID() != first.NodeID() || again.Phase != seal.Registering {
		t.Errorf("after a reboot %+v", again)
	}
	var secret []byte
	if err := b.room.UseTicket(func(s []byte) error { secret = bytes.Clone(s); return nil }); err != nil || !bytes.Equal(secret, bytes.Repeat([]byte{7}, 32)) {
		t.Errorf("the ticket's secret: %x, %v", secret, err)
	}
	cuk := b.committed(t)
	if len(cuk) != 32 {
		t.Fatalf("a CUK of %d bytes", len(cuk))
	}
	for what, use := range map[string]func(func([]byte) error) error{"CUK": b.room.UseCUK, "ticket": b.room.UseTicket} {
		if err := use(func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), b.layout.Configuration()) {
			t.Errorf("the %s after the commit: %v", what, err)
		}
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{Cuk: true}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another CUK, of which the cluster knows nothing: %v", err)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{}); err != nil {
		t.Errorf("another NUK: %v", err)
	}
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 1)
	answers <- &enrol.RefusedError{Code: codes.PermissionDenied, Message: "the policy does not allow it"}
	var numbers []uint64
	// The refusal stands until the node is answered again.
	seen := make(chan struct{})
	b.room.SetJoin(func(ctx context.Context, c *seal.Configuration, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
		numbers = append(numbers, request.GetIncarnation().GetNumber())
		if c.NodeID() != first.NodeID() || !bytes.Equal(c.Registration.CAPins[0], bytes.Repeat([]byte{9}, 32)) {
			t.Errorf("the cluster is asked for %+v", c)
		}
		select {
		case err := <-answers:
			return nil, err
		default:
		}
		select {
		case <-seen:
			return &clusterv1.JoinResponse{Cuk: bytes.Clone(cuk)}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	o := b.open()
	defer o.end()
	b.until(t, "is refused", func(s *clusterv1.StorageStatus) bool {
		return source(s, "cluster").GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_FAILED && strings.Contains(source(s, "cluster").GetReason(), "policy")
	})
	close(seen)
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	s, _ := b.room.Status().Get()
	if source(s, "cluster").GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_USED || len(s.GetWeaknesses()) != 1 {
		t.Errorf("status %v", s)
	}
	if len(numbers) != 2 || numbers[0] != numbers[1] {
		t.Errorf("the incarnations of one start: %v", numbers)
	}
}

// Where the owner's recovery key is all that is left, a node that registers goes on where it was.
func TestRegisteringIsRecovered(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, true)
	b.registers(t)
	first := b.up(t).Configuration
	if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase, c.Ticket = seal.Registered, nil }); err != nil {
		t.Fatal(err)
	}
	b.reboot(t)
	b.tpm.set(func(f *fakeTPM) { f.register++ })
	b.byRecovery(t)
	c := mustOpen(t, b).Configuration
	if c.NodeID() != first.NodeID() || c.Phase != seal.Registered || c.Registration.TicketID != "0123456789abcdef" {
		t.Errorf("recovered %+v", c)
	}
	b.committed(t)
	b.reboot(t)
	b.byRecovery(t)
	if c := mustOpen(t, b).Configuration; c.Phase != seal.Member || len(c.Owner) != 32 {
		t.Errorf("as a member %+v", c)
	}
}

func mustOpen(t *testing.T, b *bench) *unseal.Opened {
	t.Helper()
	opened, err := b.room.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// Each start has a number of its own, higher than all before it, and is the same for everybody who asks.
func TestIncarnation(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	b.up(t)
	var last *clusterv1.Incarnation
	for n := range 3 {
		now, err := b.room.Raise()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := b.room.Raise(); err != nil || again != now {
			t.Errorf("asked twice: %v, %v", again, err)
		}
		if now.GetNumber() != uint64(n+1) || len(now.GetNonce()) != 16 || bytes.Equal(now.GetNonce(), last.GetNonce()) {
			t.Errorf("start %d: %v after %v", n, now, last)
		}
		last = now
		b.reboot(t)
		b.up(t)
	}
	// One that cannot be kept is none, and may be kept later.
	b.stopAt, b.stopIn = checkpoint.RaiseIncarnation, 1
	if now, err := b.room.Raise(); !errors.Is(err, errStopped) || now != nil {
		t.Errorf("%v, %v", now, err)
	}
	b.stopAt = ""
	if now, err := b.room.Raise(); err != nil || now.GetNumber() != 4 {
		t.Errorf("%v, %v", now, err)
	}
	// Damage begins anew; what a newer core has written is left alone.
	for content, want := range map[string]uint64{"{": 1, `{"version": 9}`: 0} {
		b.reboot(t)
		if err := errors.Join(os.Remove(b.layout.Incarnation()), os.WriteFile(b.layout.Incarnation(), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		b.up(t)
		if now, err := b.room.Raise(); now.GetNumber() != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %v, %v", content, now, err)
		}
	}
}

// A node that was removed has nothing left by which it could come back, whenever its core was stopped, and says so for ever.
func TestDisowned(t *testing.T) {
	for _, kind := range []string{"encrypted", "plain"} {
		t.Run(kind, func(t *testing.T) {
			made := func(t *testing.T) *bench {
				b := newBench(t, directory(t), storage.LUKS, true)
				b.registers(t)
				if kind == "plain" {
					b.disk, b.tpm = nil, nil
					b.parameters.Volume.Kind = &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}
				}
				b.up(t)
				if _, err := b.room.Raise(); err != nil {
					t.Fatal(err)
				}
				b.committed(t)
				for _, path := range []string{filepath.Join(b.layout.Identity(), "ca.pem"), b.layout.Assignment(), filepath.Join(b.layout.Roles(), "store", "db"), b.layout.Log("store")} {
					if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("secret"), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				b.taken = nil
				return b
			}
			remove := func(t *testing.T, b *bench) error {
				t.Helper()
				if b.room.Disowned() == nil {
					if err := b.room.Wipe(t.Context()); err == nil {
						t.Error("a node that was not removed is wiped")
					}
					if err := b.room.Disown("the owner said so"); err != nil {
						return err
					}
				}
				return b.room.Wipe(t.Context())
			}
			reference := made(t)
			node := reference.room.NodeID()
			if err := remove(t, reference); err != nil {
				t.Fatal(err)
			}
			if len(reference.taken) < 3 || node == "" {
				t.Fatalf("steps %v", reference.taken)
			}
			for n, step := range reference.taken {
				t.Run(fmt.Sprintf("%d %s", n, step), func(t *testing.T) {
					b := made(t)
					id := b.room.NodeID()
					b.stopBefore(reference.taken, n)
					if err := remove(t, b); !errors.Is(err, errStopped) {
						t.Fatalf("%v", err)
					}
					b.stopAt = ""
					if err := b.start(t); err != nil {
						t.Fatal(err)
					}
					if removed := b.room.Disowned(); (removed == nil) != (step == checkpoint.Disown) || removed != nil && (removed.NodeID != id || removed.ClusterID != otherCluster) {
						t.Errorf("after the marker: %+v", removed)
					}
					if step == checkpoint.Disown {
						b.up(t)
					}
					if err := remove(t, b); err != nil {
						t.Fatal(err)
					}
					b.nothingLeft(t)
					if err := b.start(t); err != nil {
						t.Fatal(err)
					}
					if removed := b.room.Disowned(); removed == nil || removed.Reason != "the owner said so" || b.room.NodeID() != id {
						t.Errorf("for ever: %+v", removed)
					}
				})
			}
		})
	}
	t.Run("in use", func(t *testing.T) {
		b := newBench(t, directory(t), storage.LUKS, true)
		b.up(t)
		b.disk.set(func(d *fakeDisk) { d.busy = &volume.BusyError{Location: "/dev/fake"} })
		var busy *volume.BusyError
		if err := errors.Join(b.room.Disown("gone"), b.room.Wipe(t.Context())); !errors.As(err, &busy) {
			t.Fatalf("%v", err)
		}
		b.disk.set(func(d *fakeDisk) { d.busy = nil })
		if err := b.room.Wipe(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.nothingLeft(t)
	})
	t.Run("damaged", func(t *testing.T) {
		b := newBench(t, directory(t), storage.LUKS, true)
		b.up(t)
		b.kill(t)
		if err := os.WriteFile(b.layout.Disowned(), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.start(t); err == nil || !strings.Contains(err.Error(), b.layout.Disowned()) {
			t.Errorf("%v", err)
		}
	})
}

// nothingLeft verifies that nothing opens the volume or proves the node.
func (b *bench) nothingLeft(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(b.layout.System)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains([]string{"consumed.json", "disowned.json", "lock"}, entry.Name()) {
			t.Errorf("%s is left", entry.Name())
		}
	}
	if b.disk != nil {
		if b.disk.isOpen() {
			t.Error("the volume is open")
		}
		return
	}
	for _, path := range []string{b.layout.Identity(), b.layout.Assignment(), b.layout.Roles(), filepath.Dir(b.layout.Log("store"))} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// A node that hears that it was removed when it asks for its key opens its volume no more.
func TestDisownedWhileLocked(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	b.registers(t)
	b.up(t)
	b.committed(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	b.room.SetJoin(func(context.Context, *seal.Configuration, *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
		return nil, &enrol.RemovedError{NodeID: b.room.NodeID(), Reason: "stolen"}
	})
	if _, err := b.room.Open(t.Context()); !errors.Is(err, unseal.ErrDisowned) {
		t.Fatalf("%v", err)
	}
	if removed := b.room.Disowned(); removed == nil || removed.Reason != "stolen" {
		t.Errorf("%+v", removed)
	}
	if err := b.room.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft(t)
}

// A first start that registers is stopped at every step, and the next one goes on.
func TestRegisteringIsStopped(t *testing.T) {
	reference := newBench(t, directory(t), storage.LUKS, false)
	reference.registers(t)
	reference.up(t)
	for n, step := range reference.taken {
		t.Run(fmt.Sprintf("%d %s", n, step), func(t *testing.T) {
			b := newBench(t, directory(t), storage.LUKS, false)
			b.registers(t)
			b.stopBefore(reference.taken, n)
			if err := b.start(t); err != nil {
				t.Fatal(err)
			}
			if err := b.open().wait(t); !errors.Is(err, errStopped) {
				t.Fatalf("%v", err)
			}
			b.stopAt = ""
			for range 2 {
				b.reboot(t)
				if c := b.up(t).Configuration; c.Phase != seal.Registering || c.ClusterID != otherCluster {
					t.Errorf("%+v", c)
				}
			}
			if cuk := b.committed(t); len(cuk) != 32 || b.disk.formats != 1 {
				t.Errorf("a CUK of %d bytes, formatted %d times", len(cuk), b.disk.formats)
			}
		})
	}
}
