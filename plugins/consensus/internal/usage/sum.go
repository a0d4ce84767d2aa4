package usage

import (
	"bytes"
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// The keys of all users.
var (
	usersPrefix = []byte(strings.TrimSuffix(consensusv1.UserPrefix(""), "/"))
	usersEnd    = append(bytes.Clone(usersPrefix[:len(usersPrefix)-1]), usersPrefix[len(usersPrefix)-1]+1)
)

// UserOf returns whose prefix a key is in; nil: nobody's.
func UserOf(key []byte) []byte {
	rest, ok := bytes.CutPrefix(key, usersPrefix)
	if !ok {
		return nil
	}
	user, _, ok := bytes.Cut(rest, []byte{'/'})
	if !ok || len(user) == 0 {
		return nil
	}
	return user
}

func sizeOf(kv *mvccpb.KeyValue) int64 { return int64(len(kv.GetKey()) + len(kv.GetValue())) }

// pageKeys is how many keys are read at a time. Values have up to 1.5 MiB each, and writers wait for a page to be read.
const pageKeys = 32

// Total is what a user has: the bytes of its keys and values, and how many keys they are.
type Total struct{ Bytes, Keys int64 }

func (t Total) plus(o Total) Total { return Total{Bytes: t.Bytes + o.Bytes, Keys: t.Keys + o.Keys} }

const (
	// bytesOfKey is what each key counts of the quota at least where there are more than fewKeys of them. Each takes 180 bytes of memory in the index of every member, however little is in it:
	// 13 million empty ones have 256 MiB.
	bytesOfKey = int64(256)
	fewKeys    = int64(10_000)
)

// counts is how much of the quota it is.
func (t Total) counts() int64 {
	if t.Keys <= fewKeys {
		return t.Bytes
	}
	return max(t.Bytes, t.Keys*bytesOfKey)
}

// readPage reads without copying what etcd has not written to its database yet, as its own writes do: it is short.
func readPage(ctx context.Context, kv mvcc.KV, from, end []byte, options mvcc.RangeOptions) (*mvcc.RangeResult, error) {
	tx := kv.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer tx.End()
	return tx.Range(ctx, from, end, options)
}

func valueOf(ctx context.Context, kv mvcc.KV, key string) ([]byte, error) {
	answer, err := readPage(ctx, kv, []byte(key), nil, mvcc.RangeOptions{})
	if err != nil || len(answer.KVs) == 0 {
		return nil, err
	}
	return answer.KVs[0].Value, nil
}

// reader reads the sizes of keys; it opens the store with the first.
type reader struct {
	kv   mvcc.KV
	tx   mvcc.TxnRead
	held int // how many keys were read in tx
	// For growth: whose keys are looked at, how many operations still, and how many bytes were read.
	user string
	left int
	read int64
}

func (r *reader) end() {
	if r.tx != nil {
		r.tx.End()
		r.tx, r.held = nil, 0
	}
}

// get is a key and its value at a revision; 0: the present one. It is nil if there is no such key.
func (r *reader) get(ctx context.Context, key []byte, revision int64) (*mvccpb.KeyValue, error) {
	found, err := r.find(ctx, key, nil, mvcc.RangeOptions{Rev: revision})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (r *reader) find(ctx context.Context, key, end []byte, options mvcc.RangeOptions) ([]*mvccpb.KeyValue, error) {
	if r.tx == nil {
		r.tx = r.kv.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	}
	answer, err := r.tx.Range(ctx, key, end, options)
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.KVs {
		r.read += sizeOf(kv)
	}
	if r.held += len(answer.KVs); r.held >= pageKeys { // writers wait for what is read at a time
		r.end()
	}
	return answer.KVs, nil
}
