package command_test

import (
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// recovered is what is in the recovery file of every node.
const recovered = "the secrets of a node"

// The states of a volume.
const (
	open   = clusterv1.StorageState_STORAGE_STATE_OPEN
	locked = clusterv1.StorageState_STORAGE_STATE_LOCKED
	sealed = clusterv1.StorageState_STORAGE_STATE_SEALED
)

// volume is that of the local node. It is guarded by the cluster's mutex.
type volume struct {
	storage *clusterv1.StorageStatus
	// recovery is the recovery file, and recipient whom it is for.
	recovery  []byte
	recipient string
	// served grows whenever the local socket is served anew.
	served int
}

// setVolume gives the local node a volume. recipient is the public half of its recovery key; empty: there is none.
func (c *cluster) setVolume(storage *clusterv1.StorageStatus, recipient string) error {
	file, err := recoveryFile(recipient)
	if err != nil {
		return err
	}
	return c.change(c.nodes[0].ID, func(*node) {
		c.volume.storage, c.volume.recovery, c.volume.recipient = proto.CloneOf(storage), file, recipient
		c.volume.storage.Recoverable = file != nil
		c.sources()
	})
}

func recoveryFile(recipient string) ([]byte, error) {
	if recipient == "" {
		return nil, nil
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	writer, err := age.Encrypt(&file, to)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write([]byte(recovered)); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}

// damageRecovery flips the last bit of the recovery file.
func (c *cluster) damageRecovery() {
	c.update(func() { c.volume.recovery[len(c.volume.recovery)-1] ^= 1 })
}

// sources says what the sources do in the present state.
func (c *cluster) sources() {
	storage := c.volume.storage
	// What else there is stays.
	storage.Sources = slices.DeleteFunc(storage.Sources, func(source *clusterv1.CukSource) bool { return source.GetName() == "recovery" })
	if !storage.GetEncrypted() {
		return
	}
	source := &clusterv1.CukSource{Name: "recovery", State: clusterv1.CukSourceState_CUK_SOURCE_STATE_IDLE}
	if storage.GetState() != open {
		source.State, source.Reason = clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING, "for the owner: `reeve node unlock`"
	}
	storage.Sources = append(storage.Sources, source)
}

// closed says whether nothing but the volume can be asked of the local node.
func (v *volume) closed() bool { return v.storage != nil && v.storage.GetState() != open }

// allowed are the calls of a node whose volume is closed.
var allowed = []string{"GetStatus", "WatchStatus", "GetRecoveryFile", "Unlock", "GetMetrics"}

// opened refuses what the local node does not answer while its volume is closed. The cluster is locked.
func (c *cluster) opened(service any, method string) error {
	if api, ok := service.(*nodeAPI); ok && !api.local || !c.volume.closed() || slices.Contains(allowed, path.Base(method)) {
		return nil
	}
	return status.Error(codes.FailedPrecondition, "the volume of this node is locked: `reeve node unlock`")
}

// describe has a status say what the node knows while its volume is as it is.
func (v *volume) describe(s *nodev1.Status) {
	if v.storage == nil {
		return
	}
	s.Storage = proto.CloneOf(v.storage)
	s.Node.Volume, s.Node.Storage = v.storage.GetKind(), proto.CloneOf(v.storage)
	if v.closed() {
		s.Cluster.Curators, s.Cluster.CaCertificates, s.Node.Instances, s.Node.ApiAddress = nil, nil, nil, ""
		s.Membership = &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN, Reason: "the volume is locked"}
	}
}

// changeVolume gives the volume another state, upon which the local socket is served anew, once what is being answered is.
func (c *cluster) changeVolume(state clusterv1.StorageState) {
	c.volume.storage.State = state
	c.volume.served++
	c.sources()
	c.working.Go(func() {
		c.mu.Lock()
		local, socket := c.side.local, c.side.socket
		c.mu.Unlock()
		if local == nil {
			return
		}
		_ = c.serveLocal(socket)
		local.GracefulStop()
	})
}

// GetRecoveryFile answers with the file.
func (n *nodeAPI) GetRecoveryFile(context.Context, *nodev1.GetRecoveryFileRequest) (*nodev1.GetRecoveryFileResponse, error) {
	if n.cluster.volume.recovery == nil {
		return nil, status.Error(codes.NotFound, "there is no system/recovery.age")
	}
	return &nodev1.GetRecoveryFileResponse{File: n.cluster.volume.recovery, Recipient: n.cluster.volume.recipient}, nil
}

func (n *nodeAPI) Unlock(_ context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	c := n.cluster
	if string(request.GetRecovered()) != recovered {
		return nil, status.Error(codes.InvalidArgument, "that does not open this volume")
	}
	c.changeVolume(open)
	response := &nodev1.UnlockResponse{}
	if c.volume.storage.GetSealer() == "tpm2" && c.volume.storage.GetProblem() != "" {
		response.Notes = []string{"The TPM does not give the secrets back in the present state of the machine: run `reeve node reseal`."}
	}
	return response, nil
}

func (n *nodeAPI) Seal(_ context.Context, request *nodev1.SealRequest) (*nodev1.SealResponse, error) {
	if err := n.encrypted(); err != nil {
		return nil, err
	}
	if !request.GetDryRun() {
		n.cluster.changeVolume(sealed)
	}
	return &nodev1.SealResponse{}, nil
}

func (n *nodeAPI) encrypted() error {
	if !n.cluster.volume.storage.GetEncrypted() {
		return status.Error(codes.FailedPrecondition, "the volume is not encrypted")
	}
	return nil
}

func (n *nodeAPI) RotateKeys(_ context.Context, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	if err := n.encrypted(); err != nil {
		return nil, err
	}
	c := n.cluster
	kind := c.volume.storage.GetKind()
	held := slices.ContainsFunc(c.volume.storage.GetSources(), func(source *clusterv1.CukSource) bool { return source.GetName() == "cluster" })
	if held && request.GetCuk() {
		return nil, status.Error(codes.FailedPrecondition, "the cluster holds its half of the key, and the node cannot change it alone")
	}
	if request.GetDataKey() && kind != "luks" {
		return nil, status.Errorf(codes.FailedPrecondition, "the data key of a volume of kind %s cannot be changed", kind)
	}
	if recipient := request.GetRecoveryRecipient(); recipient != "" && !request.GetDryRun() {
		file, err := recoveryFile(recipient)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, "the recipient is none")
		}
		c.volume.recovery, c.volume.recipient = file, recipient
	}
	return &nodev1.RotateKeysResponse{}, nil
}

func (n *nodeAPI) Reseal(_ context.Context, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	if n.cluster.volume.storage.GetSealer() != "tpm2" {
		if len(request.GetPcrs()) > 0 {
			return nil, status.Error(codes.FailedPrecondition, "the secrets are in a file, which knows no registers")
		}
		return &nodev1.ResealResponse{}, nil
	}
	pcrs := slices.Sorted(maps.Keys(request.GetPcrs()))
	if !slices.Contains(pcrs, 7) {
		pcrs = append(pcrs, 7)
	}
	slices.Sort(pcrs)
	if !request.GetDryRun() {
		n.cluster.volume.storage.Problem = ""
	}
	return &nodev1.ResealResponse{Pcrs: pcrs}, nil
}

// openedVolume is a volume that is open. The kind may be followed by "/" and the sealer, and that by "/cluster" where the cluster holds its half of the key.
func openedVolume(kind, problem string) *clusterv1.StorageStatus {
	kind, sealer, _ := strings.Cut(kind, "/")
	sealer, holder, _ := strings.Cut(sealer, "/")
	if sealer == "" {
		sealer = "file"
	}
	storage := &clusterv1.StorageStatus{
		State: open, Kind: kind, Encrypted: kind != "plain", Location: "/var/lib/reeve/system/volume.img", Sealer: sealer, Problem: problem,
	}
	if holder != "" {
		storage.Sources = append(storage.Sources, &clusterv1.CukSource{Name: holder, State: clusterv1.CukSourceState_CUK_SOURCE_STATE_USED})
	}
	if sealer == "file" {
		storage.Weaknesses = append(storage.Weaknesses, "The node's secrets are protected by the permissions of a file only.")
	}
	if kind == "plain" {
		storage.Location = "/var/lib/reeve/data"
		storage.Weaknesses = append(storage.Weaknesses, "The volume is not encrypted.")
	}
	return storage
}
