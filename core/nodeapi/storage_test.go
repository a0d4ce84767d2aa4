package nodeapi_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/inorder"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// volume is the volume of the node of a test.
type volume struct {
	api *api
	// sealing is told of each Seal, which returns what the channel that it is given returns; nil: it returns at once.
	sealing chan chan error
	// recovered is what Unlock was given.
	recovered atomic.Pointer[[]byte]
}

func (v *volume) RecoveryFile() (*nodev1.GetRecoveryFileResponse, error) {
	return &nodev1.GetRecoveryFileResponse{File: []byte("age"), Recipient: "age1x"}, v.api.note("recovery file")
}

func (v *volume) Unlock(_ context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	v.recovered.Store(&request.Recovered)
	return &nodev1.UnlockResponse{Notes: []string{"note"}}, v.api.note("unlock " + string(request.GetRecovered()))
}

func (v *volume) Seal(caller string, request *nodev1.SealRequest) error {
	if v.sealing != nil {
		answer := make(chan error)
		v.sealing <- answer
		return <-answer
	}
	return v.api.note(fmt.Sprintf("seal for %s %t", caller, request.GetDryRun()))
}

func (v *volume) RotateKeys(_ context.Context, caller string, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	return &nodev1.RotateKeysResponse{}, v.api.note(fmt.Sprintf("rotate for %s %t %t", caller, request.GetNuk(), request.GetDryRun()))
}

func (v *volume) Reseal(_ context.Context, caller string, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	return &nodev1.ResealResponse{Pcrs: []uint32{7}}, v.api.note(fmt.Sprintf("reseal for %s %d %t", caller, len(request.GetPcrs()), request.GetDryRun()))
}

func (a *api) whyLocked() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locked
}

func (a *api) lock(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locked = why
}

func TestStorageCalls(t *testing.T) {
	a := serve(t)
	a.everybody()
	owner := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner)))
	file, err := owner.GetRecoveryFile(a.context(), &nodev1.GetRecoveryFileRequest{})
	if err != nil || string(file.GetFile()) != "age" || file.GetRecipient() != "age1x" {
		t.Errorf("the recovery file: %v, %v", file, err)
	}
	unlocked, err := a.client().Unlock(a.context(), &nodev1.UnlockRequest{Recovered: []byte("secret")})
	if err != nil || !slices.Equal(unlocked.GetNotes(), []string{"note"}) {
		t.Errorf("unlock: %v, %v", unlocked, err)
	}
	if left := *a.storage.recovered.Load(); string(left) != strings.Repeat("\x00", 6) {
		t.Errorf("what was recovered is still in memory: %q", left)
	}
	if _, err := owner.Seal(a.context(), &nodev1.SealRequest{DryRun: true}); err != nil {
		t.Error(err)
	}
	if _, err := owner.RotateKeys(a.context(), &nodev1.RotateKeysRequest{Nuk: true, DryRun: true}); err != nil {
		t.Error(err)
	}
	resealed, err := owner.Reseal(a.context(), &nodev1.ResealRequest{Pcrs: map[uint32][]byte{7: make([]byte, 32)}})
	if err != nil || !slices.Equal(resealed.GetPcrs(), []uint32{7}) {
		t.Errorf("reseal: %v, %v", resealed, err)
	}
	want := []string{"recovery file", "unlock secret", "seal for owner true", "rotate for owner true true", "reseal for owner 1 false"}
	if got := a.wasDone(); !slices.Equal(got, want) {
		t.Errorf("the node was told %q", got)
	}
	// Those that change something are kept, and say nothing of keys.
	var kept []string
	for _, event := range a.calls(1) {
		kept = append(kept, event.GetDetails()["rpc"])
	}
	if !slices.Equal(kept, []string{"Seal", "RotateKeys", "Reseal"}) {
		t.Errorf("recorded: %q", kept)
	}

	a.answers(status.Error(codes.FailedPrecondition, "not now"))
	for name, call := range map[string]func() error{
		"file": func() error {
			_, err := owner.GetRecoveryFile(a.context(), &nodev1.GetRecoveryFileRequest{})
			return err
		},
		"unlock": func() error {
			_, err := a.client().Unlock(a.context(), &nodev1.UnlockRequest{Recovered: []byte("x")})
			return err
		},
		"seal":   func() error { _, err := owner.Seal(a.context(), &nodev1.SealRequest{}); return err },
		"rotate": func() error { _, err := owner.RotateKeys(a.context(), &nodev1.RotateKeysRequest{}); return err },
		"reseal": func() error { _, err := owner.Reseal(a.context(), &nodev1.ResealRequest{}); return err },
	} {
		if err := call(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not now") {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.wasDone()
	for _, request := range []*nodev1.UnlockRequest{{}, {Recovered: make([]byte, 64<<10+1)}} {
		if _, err := a.client().Unlock(a.context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("unlock with %d bytes: %v", len(request.GetRecovered()), err)
		}
	}
	for _, pcrs := range []map[uint32][]byte{{24: make([]byte, 32)}, {7: make([]byte, 20)}, {7: nil}} {
		if _, err := owner.Reseal(a.context(), &nodev1.ResealRequest{Pcrs: pcrs}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("reseal to %v: %v", pcrs, err)
		}
	}
	if got := a.wasDone(); len(got) != 0 {
		t.Errorf("the node was told %q", got)
	}
}

// Of a locked node only what helps is answered, and everybody else is told the way out; who may not call hears that first.
func TestLocked(t *testing.T) {
	a := serve(t)
	a.everybody()
	a.lock(status.Error(codes.FailedPrecondition, "locked: `reeve node unlock`"))
	open := []string{"GetStatus", "WatchStatus", "GetMetrics", "GetRecoveryFile", "Unlock"}
	methods := nodev1.File_reeve_node_v1_node_proto.Services().ByName("NodeService").Methods()
	conn := a.local()
	for i := range methods.Len() {
		err := a.callEmpty(conn, methods.Get(i))
		permission := proto.GetExtension(methods.Get(i).Options(), clusterv1.E_Permission).(*clusterv1.Permission)
		switch name := string(methods.Get(i).Name()); {
		case !slices.Contains(permission.GetCallers(), clusterv1.Caller_CALLER_LOCAL):
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s: %v", name, err)
			}
		case slices.Contains(open, name):
			if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		case status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "reeve node unlock"):
			t.Errorf("%s: %v", name, err)
		}
	}
	viewer := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID)))
	if _, err := viewer.Seal(a.context(), &nodev1.SealRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer seals: %v", err)
	}
	a.lock(nil)
	if _, err := a.client().RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "x"}); err != nil {
		t.Errorf("unlocked: %v", err)
	}
}

// Who has the node sealed hears of it when everything else has ended: other calls, also those that do not end by themselves, their connections, and what the
// node does after that.
func TestSealIsAnsweredLast(t *testing.T) {
	for name, connect := range inorder.Of(map[string]func(*api) *grpc.ClientConn{
		"socket": (*api).local,
		"tcp":    func(a *api) *grpc.ClientConn { return a.remote(selfSigned(a.t, a.owner)) },
	}) {
		t.Run(name, func(t *testing.T) {
			a := serve(t)
			a.storage.sealing = make(chan chan error)
			began := make(chan struct{})
			ended := make(chan error, 1)
			a.imports(func(_ context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
				close(began)
				_, err := io.Copy(io.Discard, r)
				ended <- err
				return "", nil, err
			})
			hanging, err := a.client().ImportPlugin(a.context()) // sends nothing
			if err != nil {
				t.Fatal(err)
			}
			<-began
			watch, err := a.client().WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := watch.Recv(); err != nil {
				t.Fatal(err)
			}
			client := nodev1.NewNodeServiceClient(connect(a))
			result := make(chan error, 1)
			go func() {
				_, err := client.Seal(a.context(), &nodev1.SealRequest{})
				result <- err
			}()
			answer := <-a.storage.sealing
			select {
			case <-a.server.Idle():
				t.Fatal("it was idle before it was asked to end")
			default:
			}

			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				a.stop()
			}()
			<-a.server.Idle()
			if err := <-ended; err == nil {
				t.Error("the import went on to its end")
			}
			if _, err := hanging.CloseAndRecv(); err == nil {
				t.Error("the import was answered")
			}
			if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("the watch ended with %v", err)
			}
			// Nobody answers one on the socket, which is the core's until it has ended.
			beside, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := client.GetStatus(beside, &nodev1.GetStatusRequest{}); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a call beside it: %v", err)
			}
			select {
			case err := <-result:
				t.Fatalf("it was answered before: %v", err)
			case <-stopped:
				t.Fatal("the server has ended without an answer")
			default:
			}
			answer <- status.Error(codes.FailedPrecondition, "busy")
			if err := <-result; status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "busy") {
				t.Errorf("it was answered %v", err)
			}
			<-stopped
		})
	}
}

// The caller of Seal may be gone: the server ends all the same.
func TestSealWhoseCallerIsGone(t *testing.T) {
	a := serve(t)
	a.storage.sealing = make(chan chan error)
	ctx, cancel := context.WithCancel(a.context())
	conn := a.local()
	result := make(chan error, 1)
	go func() {
		_, err := nodev1.NewNodeServiceClient(conn).Seal(ctx, &nodev1.SealRequest{})
		result <- err
	}()
	answer := <-a.storage.sealing
	cancel()
	if err := <-result; status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.stop()
	}()
	<-a.server.Idle()
	answer <- nil
	<-stopped
}
