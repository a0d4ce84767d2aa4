package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// watched is a volume that pretends to be encrypted, and looks at what is open of it when it is closed.
type watched struct {
	storageRoom
	t      *testing.T
	layout storage.Layout
	status event.Value[*clusterv1.StorageStatus]
	closed chan bool
}

func (w *watched) Status() *event.Value[*clusterv1.StorageStatus] { return &w.status }

func (w *watched) Open(ctx context.Context) (*unseal.Opened, error) {
	opened, err := w.storageRoom.Open(ctx)
	w.status.Set(&clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_OPEN, Kind: "fscrypt", Encrypted: true})
	return opened, err
}

func (w *watched) Close(ctx context.Context, sealed bool) error {
	held, err := os.Stat(w.layout.Data)
	if err != nil {
		w.t.Error(err)
	}
	for _, use := range uses(w.t, w.layout.Data) {
		// The lock on the directory is the storage room's, which gives it back itself.
		if link, _, _ := strings.Cut(use, " → "); link != "" {
			if info, err := os.Stat(link); err == nil && os.SameFile(info, held) && strings.HasSuffix(use, " → "+w.layout.Data) {
				continue
			}
		}
		w.t.Errorf("when the volume is closed (sealed: %t), it is in use: %s", sealed, use)
	}
	if sealed {
		w.status.Set(&clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_SEALED, Kind: "fscrypt", Encrypted: true})
	}
	w.closed <- sealed
	return w.storageRoom.Close(ctx, sealed)
}

func plain() *nodev1.Volume {
	return &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}}
}

// Nothing of the volume is in use when it is closed, neither by the core nor by what roles leave: whatever was called meanwhile, and whatever reads still.
func TestNothingUsesTheVolumeWhenItIsClosed(t *testing.T) {
	a := newAlive(t, plain())
	w := &watched{t: t, layout: a.layout(), closed: make(chan bool, 4)}
	a.wrap = func(room storageRoom) storageRoom { w.storageRoom = room; return w }
	a.start()
	a.until("the role", ready)
	if content, err := os.ReadFile(filepath.Join(a.layout().Roles(), "api", "written")); err != nil || string(content) != "hello" {
		t.Errorf("the role wrote %q, %v", content, err)
	}
	// Each follows something in a file on the volume, for ever.
	client := a.client()
	events, err := client.WatchEvents(a.context(), &nodev1.WatchEventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	log, err := client.ReadLog(a.context(), &nodev1.ReadLogRequest{Role: "api", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := log.Recv(); err != nil {
		t.Errorf("the log: %v, %v", line, err)
	}
	importing, err := client.ImportPlugin(a.context())
	if err != nil {
		t.Fatal(err)
	}
	if err := importing.Send(&nodev1.ImportPluginRequest{Data: make([]byte, 1<<16)}); err != nil {
		t.Fatal(err)
	}
	if len(uses(t, a.layout().Data)) < 4 {
		t.Error("the test does not see what is in use")
	}
	if _, err := a.client().Seal(a.context(), &nodev1.SealRequest{}); err != nil {
		t.Errorf("Seal: %v", err)
	}
	if sealed := <-w.closed; !sealed {
		t.Error("it was closed, but not sealed")
	}
	if _, err := events.Recv(); err == nil {
		for ; err == nil; _, err = events.Recv() {
		}
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// A node whose volume is encrypted goes from its first start to being sealed, unlocked, left, adopted and stopped.
func TestLifeOfAnEncryptedNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount an image")
	}
	size := int64(256 << 20)
	a := newAlive(t, &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: &size}}}})
	a.start()
	a.until("the role", ready)
	if found := uses(t, a.layout().Data); len(found) == 0 {
		t.Fatal("the test does not see what is in use")
	}
	if _, err := a.client().Seal(a.context(), &nodev1.SealRequest{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	a.until("the role, which goes on", ready)
	closed := func() {
		t.Helper()
		// The lock on the directory that is there without the volume is the core's.
		found := slices.DeleteFunc(lasting(t, a.layout().Data, a.layout().ImageMount()), func(use string) bool { return strings.HasSuffix(use, " → "+a.layout().Data) })
		if len(found) > 0 {
			t.Errorf("the volume is closed, and in use: %q", found)
		}
		if _, err := os.Stat(a.layout().Assignment()); err == nil {
			t.Error("what is on the volume can be read")
		}
	}

	if _, err := a.client().Seal(a.context(), &nodev1.SealRequest{}); err != nil {
		t.Fatalf("Seal: %v", err)
	}
	closed()
	sealed := a.until("the sealed node", state(clusterv1.StorageState_STORAGE_STATE_SEALED))
	if sealed.GetMembership().GetState() != hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN || sealed.GetNodeId() == "" || sealed.GetNode().GetVersion() != "1.2.3" {
		t.Errorf("the sealed node is %v", sealed)
	}
	if _, err := a.client().GetRole(a.context(), &nodev1.GetRoleRequest{Role: "api"}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "reeve node unlock") {
		t.Errorf("a call of a sealed node: %v", err)
	}
	if metrics, err := a.client().GetMetrics(a.context(), &nodev1.GetMetricsRequest{}); err != nil || len(metrics.GetText()) == 0 {
		t.Errorf("the metrics of a sealed node: %v", err)
	}
	if _, err := a.client().Unlock(a.context(), &nodev1.UnlockRequest{Recovered: []byte("nothing of it")}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("unlocked by anything: %v", err)
	}
	if _, err := a.client().Unlock(a.context(), &nodev1.UnlockRequest{Recovered: a.recovered()}); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
	a.until("the role, again", ready)
	a.recorded("CoreStarted", "VolumeSealed", "Call", "VolumeOpened")

	// Its executables are in the image, outside of the encryption.
	if at := filepath.Dir(a.layout().Plugins()); at != a.layout().ImageMount() {
		t.Errorf("the executables are in %s", at)
	}
	if stored, err := filepath.Glob(filepath.Join(a.layout().Plugins(), "sha256-*")); err != nil || len(stored) == 0 {
		t.Fatalf("executables %q, %v", stored, err)
	}

	// One who uses the volume is named, and it is closed when that has ended.
	file, err := os.Open(a.layout().Assignment())
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.client().Seal(a.context(), &nodev1.SealRequest{})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), a.layout().Assignment()) {
		t.Errorf("Seal of a volume in use: %v", err)
	}
	if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("while it waits for that: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	a.until("the sealed node", state(clusterv1.StorageState_STORAGE_STATE_SEALED))
	closed()
	if err := a.end(); err != nil {
		t.Error(err)
	}

	// It stays sealed when the core starts anew. It can be stopped, and reaped.
	a.start()
	a.until("the node, still sealed", state(clusterv1.StorageState_STORAGE_STATE_SEALED))
	if err := a.end(); err != nil {
		t.Error(err)
	}
	if err := Reap(a.context(), a.parameters, hclog.NewNullLogger()); err != nil {
		t.Error(err)
	}
	a.start()
	a.until("the node, still sealed", state(clusterv1.StorageState_STORAGE_STATE_SEALED))
	if _, err := a.client().Unlock(a.context(), &nodev1.UnlockRequest{Recovered: a.recovered()}); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
	a.until("the role", ready)
	if err := a.end(); err != nil {
		t.Error(err)
	}
	closed()

	// Once it was opened it is sealed no more. It waits for the key all the same: there is no other source.
	a.start()
	a.until("the locked node", state(clusterv1.StorageState_STORAGE_STATE_LOCKED))
	if err := a.end(); err != nil {
		t.Error(err)
	}
	closed()
}

// A node that is not encrypted has nothing to seal, and says so.
func TestAPlainNodeIsNotSealed(t *testing.T) {
	a := newAlive(t, plain())
	a.start()
	present := a.until("the role", ready)
	if s := present.GetStorage(); s.GetEncrypted() || s.GetKind() != "plain" || present.GetNode().GetVolume() != "plain" || present.GetNode().GetStorage().GetKind() != "plain" {
		t.Errorf("its volume is %v", s)
	}
	if _, err := a.client().Seal(a.context(), &nodev1.SealRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("Seal: %v", err)
	}
	a.until("the role, which goes on", ready)
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// The control groups of a node are there as long as a role runs in them, also without the core, and no longer.
func TestControlGroupsGoWithTheNode(t *testing.T) {
	a := newAlive(t, plain())
	a.start()
	a.until("the role", ready)
	role, err := a.client().GetRole(a.context(), &nodev1.GetRoleRequest{Role: "api"})
	if err != nil {
		t.Fatal(err)
	}
	groups := role.GetSandbox().GetControlGroups()
	if len(groups) == 0 {
		t.Skip("cannot run: the core has no control groups here")
	}
	left := func() (found []string) {
		for _, group := range groups {
			if _, err := os.Stat(filepath.Dir(group)); err == nil {
				found = append(found, filepath.Dir(group))
			}
		}
		return found
	}
	a.stop(ErrLeave)
	if err := <-a.ended; err != nil {
		t.Fatal(err)
	}
	if found := left(); len(found) != len(groups) {
		t.Errorf("roles run on, and of %v there are %v", groups, found)
	}
	a.start()
	a.until("the role", ready)
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if found := left(); len(found) > 0 {
		t.Errorf("when the node has ended there are %v", found)
	}
}

// A room that fails is no fault of the roles: the core ends with its error, and leaves them running on their open volume, for the core that comes next.
func TestAFailedRoomLeavesTheRoles(t *testing.T) {
	a := newAlive(t, plain())
	fail, broken := make(chan error, 1), errors.New("broken")
	a.beside = func(ctx context.Context) error {
		select {
		case err := <-fail:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	w := &watched{t: t, layout: a.layout(), closed: make(chan bool, 4)}
	a.wrap = func(room storageRoom) storageRoom { w.storageRoom = room; return w }
	a.start()
	before := instanceOf(a.until("the role", ready), "api")
	fail <- broken
	if err := <-a.ended; !errors.Is(err, broken) {
		t.Errorf("the core ended with %v", err)
	}
	if left, err := anyRecords(a.layout()); err != nil || !left {
		t.Errorf("no role runs on: %v", err)
	}
	if len(w.closed) > 0 {
		t.Error("the volume is closed")
	}
	a.start()
	if after := instanceOf(a.until("the role", ready), "api"); after != before {
		t.Errorf("the role was started anew: %q, and then %q", before, after)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
}
