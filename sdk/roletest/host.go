package roletest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/event"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Host stands in for a node's core, as far as a role sees it. Its values are streamed to the role when they are set, and not before the first Set.
type Host struct {
	hostv1.UnimplementedHostServiceServer
	Membership event.Value[*hostv1.Membership]
	Directory  event.Value[*hostv1.Directory]
	Network    event.Value[[]string]
	// Operators are the operators that a role with the grant "watch-operators" (GrantOperators) admits.
	Operators event.Value[*hostv1.Operators]
	// Consensus is the answer of OpenConsensus.
	Consensus event.Value[*hostv1.OpenConsensusResponse]

	t         testing.TB
	directory string
	nodeID    string
	authority *Authority
	cluster   *Cluster // nil if the host is in none

	mu    sync.Mutex
	open  bool
	doors map[string]*door // by role; "" for Socket
	split bool
	files map[string]*file
	// rewritten is closed when a file changes, and then another one.
	rewritten chan struct{}
	calls     map[string]int
	// streams counts the open streams by method.
	streams map[string]int
	grants  []*rolev1.Grant
	// operators says that the role may know the operators.
	operators bool
	// unknown are the unimplemented methods, refused those that were refused.
	unknown, refused []string
	// firstStates says that the host knows no role states that were added later.
	firstStates bool
	machine

	store storeGate
}

// file is a file that the role may replace.
type file struct {
	content []byte // nil if it does not exist
	mounted bool
	refusal error
}

// NewHost serves a host until the test ends. It has its own CA, which issues SVIDs to its instances.
func NewHost(t testing.TB) *Host {
	t.Helper()
	authority, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return newHost(t, "/tmp", nodeIDOf(0), authority, nil)
}

func newHost(t testing.TB, within, nodeID string, authority *Authority, cluster *Cluster) *Host {
	t.Helper()
	h := &Host{
		t: t, directory: directory(t, within), nodeID: nodeID, authority: authority, cluster: cluster,
		files: make(map[string]*file), rewritten: make(chan struct{}), calls: make(map[string]int), streams: make(map[string]int), doors: map[string]*door{"": {}},
	}
	if err := h.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Stop()
		h.changeStore(func(s *storeGate) { s.behind = "" })
	})
	return h
}

// NodeID is the ID of the host's node.
func (h *Host) NodeID() string { return h.nodeID }

// Authority is the CA that issues SVIDs to the host's instances.
func (h *Host) Authority() *Authority { return h.authority }

// directory makes a directory with a path that is short enough for sockets.
func directory(t testing.TB, within string) string {
	t.Helper()
	path, err := os.MkdirTemp(within, "rt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// SetFile sets a file and lets the role replace it; nil content: the file does not exist, but the role may make it. A role that is started afterwards
// is granted the file.
func (h *Host) SetFile(path string, content []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files[path] == nil {
		h.grants = append(h.grants, &rolev1.Grant{Name: "replace-file", Parameters: map[string]string{"path": path}})
	}
	h.files[path] = &file{content: content}
	h.fileChanged()
}

// fileChanged tells those who wait for a file. mu is held.
func (h *Host) fileChanged() {
	close(h.rewritten)
	h.rewritten = make(chan struct{})
}

// MountFile makes a file of SetFile a mount point: it is written in place from now on.
func (h *Host) MountFile(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[path].mounted = true
}

// RefuseFile makes every call for a file fail with err, until err is nil.
func (h *Host) RefuseFile(path string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files[path] == nil {
		h.files[path] = &file{}
	}
	h.files[path].refusal = err
}

// File returns the content of a file; nil if it does not exist.
func (h *Host) File(path string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.files[path]; found != nil {
		return found.content
	}
	return nil
}

// Calls counts the calls of a method by its name, such as "WatchDirectory".
func (h *Host) Calls(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[method]
}

func (h *Host) called(method string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[method]++
}

// Streams counts the open streams by method name, such as "WatchDirectory". A method without streams is not in it.
func (h *Host) Streams() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.streams)
}

// opened counts a call of a stream; ended counts its end.
func (h *Host) opened(method string) (ended func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[method]++
	h.streams[method]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.streams[method]--; h.streams[method] == 0 {
			delete(h.streams, method)
		}
	}
}

// WatchMembership implements hostv1.HostServiceServer.
func (h *Host) WatchMembership(_ *hostv1.WatchMembershipRequest, stream grpc.ServerStreamingServer[hostv1.WatchMembershipResponse]) error {
	defer h.opened("WatchMembership")()
	return send(stream.Context(), &h.Membership, func(now *hostv1.Membership) error {
		return stream.Send(&hostv1.WatchMembershipResponse{Membership: now})
	})
}

// WatchDirectory implements hostv1.HostServiceServer.
func (h *Host) WatchDirectory(_ *hostv1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[hostv1.WatchDirectoryResponse]) error {
	defer h.opened("WatchDirectory")()
	return send(stream.Context(), &h.Directory, func(now *hostv1.Directory) error {
		return stream.Send(&hostv1.WatchDirectoryResponse{Directory: now})
	})
}

// WatchNetwork implements hostv1.HostServiceServer.
func (h *Host) WatchNetwork(_ *hostv1.WatchNetworkRequest, stream grpc.ServerStreamingServer[hostv1.WatchNetworkResponse]) error {
	defer h.opened("WatchNetwork")()
	return send(stream.Context(), &h.Network, func(now []string) error {
		return stream.Send(&hostv1.WatchNetworkResponse{Addresses: now})
	})
}

// GrantOperators lets the role know the operators. A role that is started afterwards is granted "watch-operators".
func (h *Host) GrantOperators() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operators = true
	h.grants = append(h.grants, &rolev1.Grant{Name: "watch-operators"})
}

// WatchOperators implements hostv1.HostServiceServer.
func (h *Host) WatchOperators(_ *hostv1.WatchOperatorsRequest, stream grpc.ServerStreamingServer[hostv1.WatchOperatorsResponse]) error {
	defer h.opened("WatchOperators")()
	h.mu.Lock()
	granted := h.operators
	h.mu.Unlock()
	if !granted {
		return status.Error(codes.PermissionDenied, "the role is not granted watch-operators")
	}
	return send(stream.Context(), &h.Operators, func(now *hostv1.Operators) error {
		return stream.Send(&hostv1.WatchOperatorsResponse{Operators: now})
	})
}

// OpenConsensus implements hostv1.HostServiceServer.
func (h *Host) OpenConsensus(_ *hostv1.OpenConsensusRequest, stream grpc.ServerStreamingServer[hostv1.OpenConsensusResponse]) error {
	defer h.opened("OpenConsensus")()
	return send(stream.Context(), &h.Consensus, stream.Send)
}

func send[T any](ctx context.Context, value *event.Value[T], send func(T) error) error {
	watcher := value.Watch()
	for {
		now, err := watcher.Next(ctx)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if err := send(now); err != nil {
			return err
		}
	}
}

// ReadFile implements hostv1.HostServiceServer.
func (h *Host) ReadFile(_ context.Context, request *hostv1.ReadFileRequest) (*hostv1.ReadFileResponse, error) {
	h.called("ReadFile")
	h.mu.Lock()
	defer h.mu.Unlock()
	found, err := h.granted(request.GetPath())
	if err != nil {
		return nil, err
	}
	if found.content == nil {
		return nil, status.Errorf(codes.NotFound, "there is no file %s", request.GetPath())
	}
	size := uint64(len(found.content))
	part := found.content[min(request.GetOffset(), size):]
	return &hostv1.ReadFileResponse{Content: part[:min(len(part), maxContent)], Digest: digest(found.content), Size: size}, nil
}

// ReplaceFile implements hostv1.HostServiceServer.
func (h *Host) ReplaceFile(_ context.Context, request *hostv1.ReplaceFileRequest) (*hostv1.ReplaceFileResponse, error) {
	h.called("ReplaceFile")
	h.mu.Lock()
	defer h.mu.Unlock()
	found, err := h.granted(request.GetPath())
	if err != nil {
		return nil, err
	}
	if digest(found.content) != request.GetExpectedDigest() {
		return nil, status.Errorf(codes.Aborted, "the file %s has changed", request.GetPath())
	}
	content := append([]byte{}, request.GetContent()...)
	if len(content) > maxContent {
		return nil, status.Errorf(codes.InvalidArgument, "the call has %d bytes, more than %d", len(content), maxContent)
	}
	if part := request.GetPart(); part != nil {
		size := uint64(len(found.content))
		if part.GetOffset() > size || part.GetLength() > size-part.GetOffset() {
			return nil, status.Errorf(codes.InvalidArgument, "the part is not within the %d bytes of the file", size)
		}
		content = slices.Concat(found.content[:part.GetOffset()], content, found.content[part.GetOffset()+part.GetLength():])
	}
	found.content = content
	h.fileChanged()
	return &hostv1.ReplaceFileResponse{Digest: digest(found.content), InPlace: found.mounted}, nil
}

// AwaitFile implements hostv1.HostServiceServer.
func (h *Host) AwaitFile(ctx context.Context, request *hostv1.AwaitFileRequest) (*hostv1.AwaitFileResponse, error) {
	h.called("AwaitFile")
	for {
		h.mu.Lock()
		found, err := h.granted(request.GetPath())
		rewritten := h.rewritten
		changed := err == nil && digest(found.content) != request.GetDigest()
		h.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if changed {
			return &hostv1.AwaitFileResponse{}, nil
		}
		select {
		case <-rewritten:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// maxContent is the largest part of a file in one call.
const maxContent = 1 << 20

func (h *Host) granted(path string) (*file, error) {
	found := h.files[path]
	if found == nil {
		return nil, status.Errorf(codes.PermissionDenied, "the file %s is not granted to the role", path)
	}
	return found, found.refusal
}

func digest(content []byte) string {
	if content == nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
