package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// errCorrupt says that what the store holds is not a counter: somebody else has written there.
var errCorrupt = errors.New("the stored counter is not a number that can be counted on")

// keyValues is what the counter needs of the store: a *consensus.Client has it.
type keyValues interface {
	Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error)
	Txn(ctx context.Context) clientv3.Txn
}

// counter is a number in the store, as decimal digits. It is the same for all instances of the role.
type counter struct {
	store keyValues
	key   string
}

// read returns the count, 0 if there is none yet.
func (c *counter) read(ctx context.Context) (uint64, error) {
	count, _, err := c.load(ctx)
	return count, err
}

// increment adds one, and returns the new count. If it fails because ctx ended or the store went away, the count may have grown or not.
func (c *counter) increment(ctx context.Context) (uint64, error) {
	for {
		count, revision, err := c.load(ctx)
		if err != nil {
			return 0, err
		}
		if count == math.MaxUint64 {
			return 0, fmt.Errorf("%w: %d is the last one", errCorrupt, count)
		}
		// Somebody else may have counted since: then the revision is another one, nothing is written, and we count again from there.
		swapped, err := c.store.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(c.key), "=", revision)).
			Then(clientv3.OpPut(c.key, strconv.FormatUint(count+1, 10))).
			Commit()
		if err != nil {
			return 0, err
		}
		if swapped.Succeeded {
			return count + 1, nil
		}
	}
}

// load returns the count and the revision in which it was written, 0 and 0 if it was not yet.
func (c *counter) load(ctx context.Context) (count uint64, revision int64, err error) {
	found, err := c.store.Get(ctx, c.key)
	if err != nil || len(found.Kvs) == 0 {
		return 0, 0, err
	}
	count, err = strconv.ParseUint(string(found.Kvs[0].Value), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %q", errCorrupt, found.Kvs[0].Value)
	}
	return count, found.Kvs[0].ModRevision, nil
}
