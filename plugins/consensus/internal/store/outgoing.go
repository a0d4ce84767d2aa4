package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// scheme is that of the peer URLs of members that others can reach.
const scheme = "https"

// divert has etcd reach the other members through ours. It has no place for that: it keeps the transports that it speaks to them through to itself, and does not ask whose
// certificate it is that it is shown. So they are looked up where they lie, and given another way to handle the scheme of the members' addresses, which a transport has for
// this and allows at any time. Until then nothing can happen: etcd itself is told of no CA that has signed anything (see peers.Files.Info).
func divert(server *etcdserver.EtcdServer, ours *peers.Outgoing) error {
	requests, err := transportIn(reflect.ValueOf(server).Elem(), "peerRt")
	if err != nil {
		return err
	}
	raft := reflect.ValueOf(server).Elem().FieldByName("r")
	if raft.Kind() == reflect.Struct {
		raft = raft.FieldByName("transport")
	}
	if raft.Kind() != reflect.Interface || raft.IsNil() || raft.Elem().Type() != reflect.TypeFor[*rafthttp.Transport]() {
		return errors.New("this version of etcd does not keep where it did what it speaks raft through")
	}
	streams, err := transportIn(raft.Elem().Elem(), "streamRt")
	if err != nil {
		return err
	}
	messages, err := transportIn(raft.Elem().Elem(), "pipelineRt")
	if err != nil {
		return err
	}
	streams.RegisterProtocol(scheme, ours.Streams())
	messages.RegisterProtocol(scheme, ours.Messages())
	requests.RegisterProtocol(scheme, ours.Messages())
	return nil
}

// transportIn returns the transport that a field holds.
func transportIn(holder reflect.Value, name string) (*http.Transport, error) {
	field := holder.FieldByName(name)
	if field.Kind() != reflect.Interface || field.IsNil() || field.Elem().Type() != reflect.TypeFor[*http.Transport]() {
		return nil, fmt.Errorf("this version of etcd does not keep a transport at %s.%s", holder.Type(), name)
	}
	return (*http.Transport)(field.Elem().UnsafePointer()), nil
}

// lay writes the first records of a joining member's log, as etcd would. It is done here because etcd asks whoever answers at the addresses of the others who the members
// are, without checking that it is a member.
func (s *Store) lay(ctx context.Context, others []*consensusv1.StorePeer) error {
	files := etcdDirectory(s.directory)
	if wal.Exist(datadir.ToWALDir(files)) {
		return nil
	}
	member, err := peers.ParseMember(s.marker.MemberID)
	if err != nil {
		return err
	}
	cluster, err := s.clusterOf(ctx, others)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWaiting, err)
	}
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &member, ClusterID: &cluster})
	if err != nil {
		return err
	}
	logger := zaplog.New(s.log)
	return checkpoint.Around(steps.BeginLog, func() error { return beginLog(logger, files, metadata) })
}

func beginLog(logger *zap.Logger, files string, metadata []byte) error {
	if err := fileutil.TouchDirAll(logger, datadir.ToMemberDir(files)); err != nil {
		return fmt.Errorf("make the directory of the store: %w", err)
	}
	begun, err := wal.Create(logger, datadir.ToWALDir(files), metadata)
	if err != nil {
		return fmt.Errorf("begin the log of the store in %s: %w", files, err)
	}
	return begun.Close()
}

// clusterOf asks the members for the ID of their store, until one answers.
func (s *Store) clusterOf(ctx context.Context, others []*consensusv1.StorePeer) (uint64, error) {
	credentials, err := s.files().Load()
	if err != nil {
		return 0, err
	}
	failed := []error{errors.New("no other member of the store says which one it is")}
	for _, other := range others {
		id, err := peers.ParseMember(other.GetMemberId())
		if err != nil || other.MemberId == s.marker.MemberID {
			continue
		}
		for _, url := range other.GetPeerUrls() {
			cluster, err := askCluster(ctx, peers.Client(credentials, id, moveBound), url)
			if err == nil || errors.Is(err, errVersion) {
				return cluster, err
			}
			failed = append(failed, fmt.Errorf("node %s: %w", other.NodeId, err))
		}
	}
	return 0, errors.Join(failed...)
}

// errVersion says that the store is of another version.
var errVersion = errors.New("this version of the consensus role cannot take the store over")

func askCluster(ctx context.Context, client *http.Client, url string) (uint64, error) {
	told, _, err := getFrom(ctx, client, url+"/version")
	if err == nil {
		err = checkVersion(told)
	}
	if err != nil {
		return 0, err
	}
	_, header, err := getFrom(ctx, client, url+"/members")
	if err != nil {
		return 0, err
	}
	id, err := types.IDFromString(header.Get("X-Etcd-Cluster-ID"))
	if err != nil {
		return 0, fmt.Errorf("it does not say which store it is of: %w", err)
	}
	return uint64(id), nil
}

// checkVersion refuses a store that is newer than the local etcd, which would end itself when it read so.
func checkVersion(content []byte) error {
	var told version.Versions
	if err := json.Unmarshal(content, &told); err != nil {
		return fmt.Errorf("not a version: %w", err)
	}
	theirs, err := semver.NewVersion(told.Cluster)
	if err != nil {
		return fmt.Errorf("it has not agreed upon a version yet: %w", err)
	}
	if ours := semver.Must(semver.NewVersion(version.Version)); ours.Major != theirs.Major || ours.Minor < theirs.Minor {
		return fmt.Errorf("%w: it is of version %s, and this node's etcd is %s; upgrade this node", errVersion, told.Cluster, version.Version)
	}
	return nil
}
