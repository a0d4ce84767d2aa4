package rehearsal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// member is the name of the member of the etcd that is thrown away, and address where nobody ever reaches it.
const member, address = "rehearsal", "unix://rehearsal"

// bump is by how much the revision is raised, as where a cluster is begun again from a snapshot.
const bump = 1 << 30

// page is how many records are read at once: a value has 2 MiB at most.
const page = 16

// Is reports whether this process is to rehearse: then it calls Main and nothing else.
func Is(arguments []string) bool { return len(arguments) == 2 && arguments[1] == Argument }

// Main rehearses by the plan that it reads from standard input, writes what it found to standard output, and returns the exit status.
func Main() int {
	found, err := rehearse()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func rehearse() (*Found, error) {
	plan := new(Plan)
	if err := json.NewDecoder(os.Stdin).Decode(plan); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	// What is private and can be written counts: not the pages of the database, which the kernel can take back.
	bound := &unix.Rlimit{Cur: uint64(plan.Memory), Max: uint64(plan.Memory)}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, bound); err != nil {
		return nil, fmt.Errorf("bound the memory of the rehearsal: %w", err)
	}
	// The kernel ends this process before the member where the machine has too little memory, and the role's own bound is not exceeded. Whether it may be told does not matter.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	ctx, cancel := context.WithTimeout(context.Background(), plan.Within)
	defer cancel()
	// What etcd says on the way is not for anybody: it would come before what it failed of.
	log := zaplog.New(hclog.NewNullLogger())
	directory := filepath.Join(plan.Directory, "etcd")
	if err := restore(log, plan, directory); err != nil {
		return nil, fmt.Errorf("restore it: %w", err)
	}
	etcd, err := open(log, directory)
	if err != nil {
		return nil, fmt.Errorf("open what was restored: %w", err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-etcd.Server.StopNotify():
		return nil, errors.New("open what was restored: etcd stopped by itself")
	case err := <-etcd.Err():
		return nil, fmt.Errorf("open what was restored: %w", err)
	case <-ctx.Done():
		return nil, fmt.Errorf("open what was restored: %w", ctx.Err())
	}
	return count(ctx, etcd.Server.KV(), plan)
}

func restore(log *zap.Logger, plan *Plan, directory string) error {
	err := snapshot.NewV3(log).Restore(snapshot.RestoreConfig{
		SnapshotPath: Path(plan.Directory), Name: member, OutputDataDir: directory, PeerURLs: []string{address},
		InitialCluster: member + "=" + address, InitialClusterToken: member, RevisionBump: bump, MarkCompacted: true,
	})
	// Its room is for what is made of it.
	return errors.Join(err, os.Remove(Path(plan.Directory)))
}

func open(log *zap.Logger, directory string) (*embed.Etcd, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	settings := embed.NewConfig()
	settings.Name, settings.Dir = member, directory
	settings.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	settings.ListenPeerUrls, settings.ListenClientUrls = nil, nil
	settings.AdvertisePeerUrls, settings.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
	settings.InitialCluster, settings.InitialClusterToken = member+"="+address, member
	settings.EnableGRPCGateway, settings.UnsafeNoFsync = false, true
	return embed.StartEtcd(settings)
}

// count counts at the revision that was restored: leases end in this etcd too, and take their keys with them.
func count(ctx context.Context, kv mvcc.KV, plan *Plan) (*Found, error) {
	revision := plan.Revision + bump
	counted := func(key, end string) (int64, error) {
		answer, err := kv.Range(ctx, []byte(key), []byte(end), mvcc.RangeOptions{Rev: revision, CountOnly: true})
		if err != nil {
			return 0, fmt.Errorf("count the keys: %w", err)
		}
		return int64(answer.Count), nil
	}
	found := &Found{Counts: make(map[string]int64)}
	var err error
	if found.Keys, err = counted("\x00", ""); err != nil {
		return nil, err
	}
	for name, prefix := range plan.Prefixes {
		if found.Counts[name], err = counted(prefix, clientv3.GetPrefixRangeEnd(prefix)); err != nil {
			return nil, err
		}
	}
	found.Records, err = records(ctx, kv, plan, revision)
	return found, err
}

// records writes the keys that the plan asks for.
func records(ctx context.Context, kv mvcc.KV, plan *Plan, revision int64) (written int64, err error) {
	file, err := os.OpenFile(RecordsPath(plan.Directory), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffered := bufio.NewWriter(file)
	for next, end := plan.Records, clientv3.GetPrefixRangeEnd(plan.Records); ; {
		answer, err := kv.Range(ctx, []byte(next), []byte(end), mvcc.RangeOptions{Rev: revision, Limit: page})
		if err != nil {
			return 0, fmt.Errorf("read the records of the cluster: %w", err)
		}
		for _, pair := range answer.KVs {
			record := &consensusv1.SnapshotRecord{Key: pair.Key[len(plan.Records):], Value: pair.Value}
			if _, err := protodelim.MarshalTo(buffered, record); err != nil {
				return 0, fmt.Errorf("write the records of the cluster: %w", err)
			}
		}
		written += int64(len(answer.KVs))
		if len(answer.KVs) < page {
			return written, buffered.Flush()
		}
		next = string(answer.KVs[page-1].Key) + "\x00"
	}
}
