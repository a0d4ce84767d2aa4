package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// forceSpace is how much the database may grow beyond its quota while the member is made the only one.
const forceSpace = 16 << 20

// force makes the member the only one of its store, and begins a new generation. Nobody is served meanwhile, and nobody reaches the member. Killed anywhere, it is done again.
func (s *Store) force(ctx context.Context, promise *Promise) error {
	if promise.Node != s.plan.NodeID {
		return foreign("the member of node %s is to become the only one by the recovery %s, but this is node %s; %s", promise.Node, promise.ID, s.plan.NodeID, wayOutOfForeign)
	}
	s.log.Warn("the store has lost its majority; this member is made its only one", "recovery", promise.ID, "member", s.marker.MemberID)
	if s.marker.MemberID != s.remadeMember(promise) {
		err := s.forceMember(ctx, promise)
		if !s.halt() {
			return errors.Join(err, s.unstopped())
		}
		s.etcd, s.client = nil, nil
		if err == nil {
			err = s.remake(promise)
		}
		if err != nil {
			return fmt.Errorf("make this member the only one of its store: %w", err)
		}
	}
	if err := adoptRemade(s.directory, s.marker.MemberID); err != nil {
		return fmt.Errorf("put the files of member %s in the place of the former ones: %w", s.marker.MemberID, err)
	}
	// Its credentials are of a CA that former members have, too. A new one is made, and its writing is what the store acknowledges first.
	err := checkpoint.Around(steps.DropCredentials, func() error {
		if err := os.RemoveAll(peerDirectory(s.directory)); err != nil {
			return err
		}
		return syncDirectory(s.directory)
	})
	if err != nil {
		return fmt.Errorf("delete the credentials of the former store: %w", err)
	}
	promise.Phase = Forced
	return promise.Write(s.directory)
}

func (s *Store) forceMember(ctx context.Context, promise *Promise) (err error) {
	s.client, s.etcd, s.halted, s.stopped = nil, nil, false, nil
	if s.space, err = newSpace(s.config); err != nil {
		return err
	}
	member, err := peers.ParseMember(s.marker.MemberID)
	if err != nil {
		return err
	}
	s.peering = newPeering(s) // etcd needs it; it is never started
	if _, err := s.prove(member); err != nil {
		return err
	}
	settings, err := settings(s.config, s.plan, beginning{peers: s.files().Info()})
	if err != nil {
		return err
	}
	settings.QuotaBackendBytes = s.space.hard + forceSpace
	settings.ForceNewCluster = true
	trimLog(s.log, settings.Dir)
	// etcd drops what is in the log and not known to be agreed upon. The leader may have acknowledged it all the same.
	if err := checkpoint.Around(steps.CommitLog, func() error { return commitLog(zaplog.New(s.log), settings.Dir, member) }); err != nil {
		return err
	}
	if s.etcd, err = startEtcd(settings); err != nil {
		return fmt.Errorf("start etcd in %s: %w", settings.Dir, err)
	}
	if err := guard(func() error { return divert(s.etcd.Server, s.peering.outgoing) }); err != nil {
		return fmt.Errorf("keep etcd from the other members: %w", err)
	}
	s.client = v3client.New(s.etcd.Server)
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	for _, other := range s.otherPeers() { // etcd may have left some that did not vote
		if err := s.RemoveMember(ctx, other.ID); err != nil {
			return fmt.Errorf("remove the former member of node %s: %w", other.Node, err)
		}
	}
	if err := s.takeBackAlarms(ctx); err != nil {
		return err
	}
	id, err := hex.DecodeString(promise.ID)
	if err != nil {
		return err
	}
	err = s.beginGeneration(ctx, &consensusv1.StoreGeneration{
		Id: id, Kind: consensusv1.StoreGenerationKind_STORE_GENERATION_KIND_RECOVERED, Revision: s.etcd.Server.KV().Rev(), Taken: time.Now().Unix(),
	})
	if err != nil {
		return err
	}
	return s.refreshGeneration()
}

// takeBackAlarms takes back that members are full: nobody else would take back what a former one has said.
func (s *Store) takeBackAlarms(ctx context.Context) error {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		_, err := s.etcd.Server.Alarm(Root(ctx), &pb.AlarmRequest{MemberID: alarm.MemberID, Action: pb.AlarmRequest_DEACTIVATE, Alarm: alarm.Alarm})
		if err != nil {
			return fmt.Errorf("take back the alarm of member %s: %w", peers.FormatMember(alarm.MemberID), err)
		}
	}
	return nil
}

// beginGeneration writes the next generation, of which the ID, the kind, and what its data is of are given, and drops what the former members have told each other. It is one transaction. Nobody else
// is in the store.
func (s *Store) beginGeneration(ctx context.Context, begun *consensusv1.StoreGeneration) error {
	key := generationKey(s.plan.ClusterUser)
	stored, revision, err := s.stored(key)
	if err != nil {
		return err
	}
	former := &consensusv1.StoreGeneration{}
	if err := proto.Unmarshal(stored, former); err != nil {
		return fmt.Errorf("read the generation of the store: %w", err)
	}
	if bytes.Equal(former.GetId(), begun.Id) { // killed since
		return nil
	}
	// Data from before former restores does not know of them, and this store comes after theirs all the same.
	begun.Begun, begun.NodeId = time.Now().Unix(), s.plan.NodeID
	begun.Number = max(former.GetNumber()+1, uint64(max(begun.Begun, 0)))
	content, err := proto.Marshal(begun)
	if err != nil {
		return err
	}
	return checkpoint.Around(steps.BeginGeneration, func() error {
		answer, err := s.client.Txn(Root(ctx)).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(content)),
				clientv3.OpDelete(peers.Prefix, clientv3.WithRange(peers.AskedKey)),
				clientv3.OpDelete(peers.AskedKey+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(peers.Prefix)))).
			Commit()
		if err == nil && !answer.Succeeded {
			err = errors.New("somebody else has written it meanwhile")
		}
		if err != nil {
			return fmt.Errorf("write the generation of the store: %w", err)
		}
		return nil
	})
}

// commitLog notes in the log of a stopped member that all of it is agreed upon, up to where it removes the member itself: with that, nothing could be made of it any more.
func commitLog(log *zap.Logger, directory string, member uint64) error {
	err := guard(func() error { return tryCommitLog(log, directory, member) })
	if errors.Is(err, io.ErrUnexpectedEOF) && wal.Repair(log, datadir.ToWALDir(directory)) { // the last record was cut off; etcd does the same
		err = guard(func() error { return tryCommitLog(log, directory, member) })
	}
	if err != nil {
		return fmt.Errorf("note in the log in %s that its last entries count: %w", datadir.ToWALDir(directory), err)
	}
	return nil
}

func tryCommitLog(log *zap.Logger, directory string, member uint64) error {
	snapshots, err := wal.ValidSnapshotEntries(log, datadir.ToWALDir(directory))
	if err != nil {
		return err
	}
	from := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		from = snapshots[len(snapshots)-1]
	}
	opened, err := wal.Open(log, datadir.ToWALDir(directory), from)
	if err != nil {
		return err
	}
	_, state, entries, err := opened.ReadAll()
	last := state.GetCommit()
	for _, entry := range entries {
		if err != nil || entry.GetIndex() > last && removes(entry, member) {
			break
		}
		last = max(last, entry.GetIndex())
	}
	if err == nil && last > state.GetCommit() {
		state.Commit = new(last)
		err = opened.Save(state, nil)
	}
	return errors.Join(err, opened.Close()) // which syncs it
}

// removes reports whether an entry of the log removes a member.
func removes(entry *raftpb.Entry, member uint64) bool {
	change := &raftpb.ConfChange{}
	return entry.GetType() == raftpb.EntryConfChange && proto.Unmarshal(entry.GetData(), change) == nil &&
		change.GetType() == raftpb.ConfChangeRemoveNode && change.GetNodeId() == member
}
