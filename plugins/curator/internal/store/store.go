package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// answerWithin is how long one exchange with the store may take: longer than an election at the default timing, shorter than people and
// heartbeats wait.
const answerWithin = 5 * time.Second

// Config is what a Store needs.
type Config struct {
	// Client sees the keys of the curator's ConsensusUser from the root.
	Client *clientv3.Client
	// Leases renews many leases on one stream; nil: each is renewed by itself.
	Leases pb.LeaseClient
	// ClusterUser is the curator's own ConsensusUser: it is not part of the desired state.
	ClusterUser string
	// AnswerWithin bounds every exchange with the consensus store; default 5 s.
	AnswerWithin time.Duration
}

// Store reads and writes the state of the cluster. It is safe for concurrent use, by any number of curators.
type Store struct {
	client       *clientv3.Client
	leases       pb.LeaseClient
	clusterUser  string
	answerWithin time.Duration
	turnWithin   time.Duration // how long a change waits for its turn: as long as an exchange takes, but in tests
	reached      atomic.Int64  // the newest revision that the store has answered with
	away         atomic.Bool   // somebody has waited for the store in vain since it last answered
	listing      chan struct{} // holds one for every reader of the audit log
	changing     chan struct{} // holds one while a change has its turn

	// known is the records as they were last read or written here. They are what ReadRecords returns for as long as the store says that they stand.
	known atomic.Pointer[State]

	nodes      *together[string, *State]
	epochs     *together[struct{}, uint64]
	heartbeats *together[string, heartbeat]
	renewing   *together[clientv3.LeaseID, error]
	following  *together[clientv3.LeaseID, error] // renewals of those whose lease is known
}

// New returns a Store. It owns nothing: the client is closed by whoever made it.
func New(config Config) *Store {
	s := &Store{client: config.Client, leases: config.Leases, clusterUser: config.ClusterUser, answerWithin: config.AnswerWithin, listing: make(chan struct{}, auditReaders),
		changing: make(chan struct{}, 1)}
	if s.answerWithin == 0 {
		s.answerWithin = answerWithin
	}
	s.turnWithin = s.answerWithin
	s.nodes = newTogether(turnsAtOnce, readsPerTurn, s.readNodes)
	// One read answers all who ask, however many they are; the next one begins when it has ended.
	s.epochs = newTogether(1, math.MaxInt, func(ctx context.Context, _ []struct{}) (map[struct{}]uint64, error) {
		epoch, err := s.Probe(ctx)
		return map[struct{}]uint64{{}: epoch}, err
	})
	s.heartbeats = newTogether(turnsAtOnce, readsPerTurn, s.readHeartbeats)
	s.renewing = newTogether(turnsAtOnce, renewalsPerTurn, s.renewals)
	s.following = newTogether(turnsAtOnce, renewalsPerTurn, s.renewals)
	s.following.gather = gatherBeats
	return s
}

// ReadCluster reads everything. The error is ErrNoCluster if there is no cluster.
func (s *Store) ReadCluster(ctx context.Context) (*State, error) {
	return whole(s.ReadAll(ctx))
}

// ReadNode reads what says who a node is: cluster, CA, and the record of the node, if there is one, with what is known of its starts.
func (s *Store) ReadNode(ctx context.Context, id string) (*State, error) {
	state, _, err := s.nodes.call(ctx, id)
	return whole(state, err)
}

// ReadOperator reads what says who an operator is: cluster, CA, and the record of the operator, if there is one.
func (s *Store) ReadOperator(ctx context.Context, name string) (*State, error) {
	state, err := s.read(ctx, "read the record of an operator",
		clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(operatorKey(name)))
	return whole(state, err)
}

// ReadOperators reads cluster, CA and the records of all operators.
func (s *Store) ReadOperators(ctx context.Context) (*State, error) {
	state, err := s.read(ctx, "read the records of the operators",
		clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(prefixOperators, clientv3.WithPrefix()))
	return whole(state, err)
}

// ReadNodes reads all that is shown of the nodes whose IDs begin so.
func (s *Store) ReadNodes(ctx context.Context, beginning string) (*State, error) {
	of := func(key func(string) string) clientv3.Op {
		return clientv3.OpGet(key(beginning), clientv3.WithPrefix())
	}
	return whole(s.read(ctx, "read a node", clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(prefixPlugins, clientv3.WithPrefix()), clientv3.OpGet(keyStoreState),
		of(nodeKey), of(statusKey), of(heartbeatKey), of(refusedKey)))
}

// ReadReported returns records with what the nodes from one ID to another have last reported, whether their heartbeats are fresh, and what was refused of them.
func (s *Store) ReadReported(ctx context.Context, records *State, first, last string) (*State, error) {
	within := func(key func(string) string) clientv3.Op {
		return clientv3.OpGet(key(first), clientv3.WithRange(key(last)+"\x00"))
	}
	reported, err := s.read(ctx, "read what nodes report", within(statusKey), within(heartbeatKey), within(refusedKey))
	if err != nil {
		return nil, err
	}
	state := *records
	state.Statuses, state.Beats, state.Refused = reported.Statuses, reported.Beats, reported.Refused
	return &state, nil
}

// ReadSnapshots returns the records with what nodes have of scheduled snapshots.
func (s *Store) ReadSnapshots(ctx context.Context) (*State, error) {
	records, err := s.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := s.read(ctx, "read what nodes have of snapshots", clientv3.OpGet(prefixSnapshots, clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	state := *records
	state.Snapshots = kept.Snapshots
	return &state, nil
}

// ReadAll reads everything but the audit log and the keys of volumes as it is: without a cluster, or with damaged records, it is up to the caller what to make of it.
func (s *Store) ReadAll(ctx context.Context) (*State, error) {
	return s.read(ctx, "read the cluster's state",
		clientv3.OpGet(firstRecord, clientv3.WithRange(prefixUnlock)), clientv3.OpGet(afterUnlock, clientv3.WithFromKey()))
}

// Probe asks the store for a linearizable answer, and so tells whether it has a quorum. It returns the epoch. It waits for the whole time that an exchange may take, also for
// a store that was away before: one that answers slowly is found to be back by it.
func (s *Store) Probe(ctx context.Context) (epoch uint64, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	state, err := s.readWithin(ctx, bounded, "read the epoch", clientv3.OpGet(keyEpoch))
	if err != nil {
		return 0, err
	}
	return state.Epoch, nil
}

// ReadEpoch reads the epoch, together for all who ask at the same time.
func (s *Store) ReadEpoch(ctx context.Context) (uint64, error) {
	epoch, _, err := s.epochs.call(ctx, struct{}{})
	return epoch, err
}

// ReadSigningKey reads the private key of the cluster CA, PKCS #8, and the certificate that it belongs to, DER.
func (s *Store) ReadSigningKey(ctx context.Context) (key, certificate []byte, err error) {
	bounded, cancel := s.patiently(ctx)
	defer cancel()
	response, err := readAgain(bounded, s.client, clientv3.OpGet(keySigningKey), clientv3.OpGet(keyCertificates))
	if err != nil {
		return nil, nil, s.failed(ctx, "read the key of the cluster CA", err)
	}
	signing, certificates := response.Responses[0].GetResponseRange().GetKvs(), response.Responses[1].GetResponseRange().GetKvs()
	if len(signing) == 0 || len(certificates) == 0 {
		return nil, nil, ErrNoCluster
	}
	var record curatorv1.SigningKey
	if err := proto.Unmarshal(signing[0].Value, &record); err != nil {
		return nil, nil, &RecordError{Key: keySigningKey, Err: err}
	}
	ca, err := decode(keyCertificates, certificates[0].Value)
	if err != nil {
		return nil, nil, err
	}
	return record.GetPrivateKey(), ca.(*curatorv1.CertificateAuthority).GetCertificates()[0], nil
}

// Watch streams the changes of all keys but the audit log after a revision.
func (s *Store) Watch(ctx context.Context, after int64) clientv3.WatchChan {
	// Progress notifications carry the revision on while nothing changes, so that a resumed watch is rarely behind a compaction. With a leader
	// required, a member that was cut off says so in place of being silent.
	return s.client.Watch(clientv3.WithRequireLeader(ctx), firstRecord, clientv3.WithFromKey(), clientv3.WithRev(after+1), clientv3.WithProgressNotify())
}

// Genesis is the first state of a cluster.
type Genesis struct {
	Cluster *curatorv1.Cluster
	CA      *curatorv1.CertificateAuthority
	Key     *curatorv1.SigningKey
	Node    *clusterv1.NodeRecord
	Plugins []*clusterv1.PluginRecord
	// Policy is nil if the cluster begins with none.
	Policy *clusterv1.ClusterPolicy
	// Reports are the signed reports of which the records of the plugins tell.
	Reports []Report
}

// State returns the records as decisions see them.
func (g Genesis) State() *State {
	state := newState(0).With(&Change{Nodes: []*clusterv1.NodeRecord{g.Node}, Plugins: g.Plugins, Policy: g.Policy})
	state.Cluster, state.Epoch = g.Cluster, 1
	state.setCA(g.CA)
	return state
}

// Create writes the first state of a cluster, in one transaction and only into an empty store. It returns false if there is something in the
// store already.
func (s *Store) Create(ctx context.Context, genesis Genesis) (bool, error) {
	state := genesis.State()
	var writes transaction
	writes.put(keyCluster, genesis.Cluster)
	writes.put(keyCertificates, genesis.CA)
	writes.put(keySigningKey, genesis.Key)
	writes.put(keyEpoch, &curatorv1.Epoch{Number: state.Epoch})
	writes.put(nodeKey(genesis.Node.GetId()), genesis.Node)
	for _, plugin := range state.Catalog() {
		writes.put(pluginKey(plugin.GetName()), plugin)
	}
	if genesis.Policy != nil {
		writes.put(keyPolicy, genesis.Policy)
	}
	for _, report := range genesis.Reports {
		writes.putText(reportKey(report.Plugin, report.Digest), string(report.Envelope))
	}
	writes.put(keyDesired, Desired(state, s.clusterUser))
	if err := writes.check(); err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	checkpoint.Before(steps.Create)
	response, err := s.client.Txn(bounded).
		If(clientv3.Compare(clientv3.CreateRevision("").WithPrefix(), "=", 0)).
		Then(writes.ops...).Commit()
	if err != nil {
		return false, s.failed(ctx, "write the first state of the cluster", err)
	}
	checkpoint.After(steps.Create)
	return response.Succeeded, nil
}

// read makes a state of what gets return, all at one revision.
func (s *Store) read(ctx context.Context, doing string, gets ...clientv3.Op) (*State, error) {
	bounded, cancel := s.patiently(ctx)
	defer cancel()
	return s.readWithin(ctx, bounded, doing, gets...)
}

// readWithin is read for a caller of its own bound, which is that of ctx and a time.
func (s *Store) readWithin(ctx, bounded context.Context, doing string, gets ...clientv3.Op) (*State, error) {
	response, err := readAgain(bounded, s.client, gets...)
	if err != nil {
		return nil, s.failed(ctx, doing, err)
	}
	s.reach(response.Header)
	return stateOf(response), nil
}

// stateOf makes a state of what the gets of a transaction have returned.
func stateOf(response *clientv3.TxnResponse) *State {
	state := newState(response.Header.GetRevision())
	for _, got := range response.Responses {
		for _, kv := range got.GetResponseRange().GetKvs() {
			state.put(kv)
		}
	}
	return state
}

func whole(state *State, err error) (*State, error) {
	if err != nil {
		return nil, err
	}
	if err := state.Check(); err != nil {
		return nil, err
	}
	if state.Cluster == nil {
		return nil, ErrNoCluster
	}
	return state, nil
}

// reach takes note of an answer, and of its revision.
func (s *Store) reach(header *pb.ResponseHeader) {
	s.away.Store(false)
	for {
		known := s.reached.Load()
		if header.GetRevision() <= known || s.reached.CompareAndSwap(known, header.GetRevision()) {
			return
		}
	}
}

// failed tells a store that does not answer from a caller that gave up.
func (s *Store) failed(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if late := errors.Is(err, context.DeadlineExceeded); late || elects(err) {
		if late {
			err = errors.New("it did not answer in time")
		}
		s.away.Store(true)
	}
	return &UnavailableError{Doing: doing, Err: err}
}
