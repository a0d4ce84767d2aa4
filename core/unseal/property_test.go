package unseal_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestNothingIsLost has anything happen to a node in any order. Its volume is formatted once, and the recovery key opens it at the end.
func TestNothingIsLost(t *testing.T) {
	if err := errors.Join(flag.Set("rapid.seed", seed), flag.Set("rapid.checks", histories)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		path, err := os.MkdirTemp(memory(), "unseal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(path)
		if err := os.Chmod(path, 0o711); err != nil {
			t.Fatal(err)
		}
		b := newBench(t, path, storage.LUKS, rapid.Bool().Draw(t, "tpm"))
		defer func() { b.kill(t) }()
		made := ""
		// halfway says that the data key was being changed when the node was stopped.
		halfway := false
		var running *opening
		end := func() {
			if running != nil {
				running.end()
				running = nil
			}
		}
		defer end()
		begin := func() bool {
			end()
			if err := b.start(t); err != nil {
				t.Fatalf("start: %v", err)
			}
			running = b.open()
			select {
			case <-running.done:
			case <-b.quiet(t):
			}
			s, _ := b.room.Status().Get()
			if s.GetState() == isOpen {
				if err := running.wait(t); err != nil {
					t.Fatalf("open: %v", err)
				}
				id := b.room.NodeID()
				if made != "" && id != made {
					t.Fatalf("node %s has become %s", made, id)
				}
				made = id
			}
			return s.GetState() == isOpen
		}
		t.Repeat(map[string]func(*rapid.T){
			"stop at a step": func(t *rapid.T) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.stopAt, b.stopIn = rapid.SampledFrom(checkpoint.All()).Draw(t, "step"), rapid.IntRange(1, 4).Draw(t, "time")
			},
			"reboot": func(*rapid.T) { end(); b.reboot(t); begin() },
			"kill":   func(*rapid.T) { end(); b.kill(t); begin() },
			"change the TPM": func(t *rapid.T) {
				if b.tpm == nil {
					t.Skip("there is none")
				}
				b.tpm.set(func(f *fakeTPM) { f.register = byte(rapid.IntRange(0, 2).Draw(t, "register")) })
			},
			"damage": func(t *rapid.T) {
				if made == "" {
					t.Skip("there is nothing to lose")
				}
				path := rapid.SampledFrom([]string{b.layout.Configuration(), b.layout.VolumeKey(), b.layout.CUK(), b.layout.Consumed()}).Draw(t, "file")
				if s, _ := b.room.Status().Get(); s.GetState() == isOpen && !strings.Contains(strings.Join(s.GetWeaknesses(), " "), "interrupted") {
					halfway = false
				}
				if halfway && path == b.layout.VolumeKey() {
					t.Skip("until a change of the data key is finished, the recovery key needs this file")
				}
				content, err := os.ReadFile(path)
				if err != nil {
					t.Skip("it is not there")
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "remains") {
					if err := os.WriteFile(path, content[:rapid.IntRange(0, len(content)/2).Draw(t, "length")], 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
			"unlock": func(*rapid.T) {
				if b.room == nil || made == "" {
					t.Skip("nobody waits")
				}
				if s, _ := b.room.Status().Get(); s.GetState() != locked || isDone(running) {
					t.Skip("nobody waits")
				}
				_, _ = b.unlock(t, b.recovered(t))
			},
			"rotate": func(t *rapid.T) {
				if b.room == nil {
					t.Skip("no core")
				}
				request := &nodev1.RotateKeysRequest{Nuk: rapid.Bool().Draw(t, "nuk"), Cuk: rapid.Bool().Draw(t, "cuk"), DataKey: rapid.Bool().Draw(t, "data")}
				if _, err := b.room.RotateKeys(t.Context(), request); status.Code(err) == codes.Aborted && request.DataKey {
					halfway = true
				}
			},
			"allow": func(t *rapid.T) {
				if b.room == nil {
					t.Skip("no core")
				}
				_ = b.room.Allow(t.Context(), rapid.SampledFrom([][]string{nil, {"recovery"}, {"recovery", "tpm"}}).Draw(t, "sources"))
			},
		})
		b.mu.Lock()
		b.stopAt = ""
		b.mu.Unlock()
		end()
		b.reboot(t)
		if !begin() {
			if _, err := os.Stat(b.layout.Recovery()); made == "" && err != nil {
				// The machine has changed before there was a recovery file, or anything else to lose.
				var unreadable *seal.UnreadableError
				if err := running.wait(t); !errors.As(err, &unreadable) || b.disk.formats != 0 {
					t.Fatalf("open of a node that was never made: %v; formatted %d times", err, b.disk.formats)
				}
				return
			}
			_, errMark := os.Stat(b.layout.Volume())
			_, err := b.unlock(t, b.recovered(t))
			if made == "" && errMark != nil {
				// The machine has changed between the recovery file and the mark of the volume. There is nothing on it to lose: the machine as it was goes on making
				// the node.
				says := "volume.json is missing"
				if b.disk.formats == 0 {
					says = "there is no volume"
				}
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), says) {
					t.Fatalf("unlock of a volume that was never made: %v", err)
				}
				for register := byte(0); !b.asItWas(t, register, begin); register++ {
					if register == 2 {
						t.Fatal("a node that was never made is made in no state of the machine")
					}
				}
			} else if err != nil && status.Code(err) != codes.FailedPrecondition {
				t.Fatalf("unlock: %v", err)
			}
			if err := running.wait(t); err != nil {
				t.Fatalf("open at the end: %v", err)
			}
		}
		if made != "" && b.room.NodeID() != made || b.disk.formats != 1 {
			t.Fatalf("node %s, it was %s; formatted %d times", b.room.NodeID(), made, b.disk.formats)
		}
	})
}

// asItWas starts the machine in a state of its TPM, and says whether the volume opens by that.
func (b *bench) asItWas(t T, register byte, begin func() bool) bool {
	t.Helper()
	b.reboot(t)
	b.tpm.set(func(f *fakeTPM) { f.register = register })
	return begin()
}

func isDone(o *opening) bool {
	if o == nil {
		return true
	}
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// quiet is closed when the room is open or says what it waits for.
func (b *bench) quiet(t T) <-chan struct{} {
	t.Helper()
	done, room := make(chan struct{}), b.room
	go func() {
		defer close(done)
		watcher := room.Status().Watch()
		for {
			s, err := watcher.Next(b.context())
			if err != nil || s.GetState() == isOpen || s.GetProblem() != "" && s.GetState() != clusterv1.StorageState_STORAGE_STATE_OPENING {
				return
			}
		}
	}()
	return done
}
