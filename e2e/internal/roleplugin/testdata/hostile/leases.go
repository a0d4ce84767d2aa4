package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// leases tries what can be done to a lease whose ID is known, and to find out IDs. The victim's own look at its leases is what counts beside.
func leases(a *attempt, e *etcd) {
	empty, _ := strconv.ParseInt(a.arguments["empty"], 10, 64)
	for _, l := range []struct {
		what string
		id   int64
	}{{"the victim's lease", a.lease()}, {"the victim's lease without keys", empty}} {
		a.rpc("LeaseTimeToLive "+l.what, func(ctx context.Context) error {
			response, err := e.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: l.id, Keys: true})
			if err == nil && response.GetTTL() <= 0 {
				return errors.New("it is as if there were none")
			}
			return err
		})
		a.rpc("LeaseKeepAlive "+l.what, func(ctx context.Context) error { return keepAlive(ctx, e, l.id, 1) })
		a.rpc("Grant the ID of "+l.what, func(ctx context.Context) error {
			return drop(e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60, ID: l.id}))
		})
		a.rpc("LeaseRevoke "+l.what, func(ctx context.Context) error {
			return drop(e.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.id}))
		})
	}
	a.rpc("LeaseLeases", func(ctx context.Context) error {
		response, err := e.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
		if err != nil {
			return err
		}
		for _, found := range response.GetLeases() {
			if found.GetID() == a.lease() || found.GetID() == empty {
				return nil
			}
		}
		return errors.New("the victim's are not in the list")
	})
	// IDs near the victim's: another's lease, or one that the victim would get next.
	a.rpc("LeaseRevoke 200 IDs near the victim's", func(ctx context.Context) error {
		var last error
		for distance := int64(1); distance <= 100; distance++ {
			for _, id := range []int64{a.lease() + distance, a.lease() - distance} {
				if _, err := e.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}); err == nil {
					return nil
				} else {
					last = err
				}
			}
		}
		return last
	})
	a.rpc("Grant an ID that the victim would get next", func(ctx context.Context) error {
		response, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60, ID: a.lease() + 1000})
		if err == nil && response.GetID() != a.lease()+1000 {
			return fmt.Errorf("another ID is given: %x", response.GetID())
		}
		return err
	})
}

// keepAlive keeps a lease alive so many times, and reads the answers then.
func keepAlive(ctx context.Context, e *etcd, id int64, times int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := e.LeaseKeepAlive(ctx)
	for n := 0; n < times && err == nil; n++ {
		err = stream.Send(&pb.LeaseKeepAliveRequest{ID: id})
	}
	for n := 0; n < times && err == nil; n++ {
		var response *pb.LeaseKeepAliveResponse
		if response, err = stream.Recv(); err == nil && response.GetTTL() <= 0 {
			return errNoLease
		}
	}
	return err
}

var errNoLease = errors.New("it is as if there were none")

// storeQuota fills the store with what a role may not have: 300 MiB.
func storeQuota(a *attempt, e *etcd) {
	value := make([]byte, 1<<20)
	for i := range value {
		value[i] = byte(i * 7)
	}
	written := 0
	var err error
	for ; written < 300 && err == nil; written++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err = e.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "%sbulk/%d", a.prefix(), written), Value: value})
		cancel()
	}
	a.result.Values["written"] = strconv.Itoa(written)
	a.try(fmt.Sprintf("write 300 MiB (refused after %d)", written), err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = e.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(a.prefix() + "bulk/"), RangeEnd: []byte(a.prefix() + "bulk0")})
	if err != nil {
		a.note("delete it again", say(err))
	}
}

// leaseQuota takes 5,000 leases.
func leaseQuota(a *attempt, e *etcd) {
	const many = 5000
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	taken := make([]int64, 0, many)
	var err error
	for len(taken) < many && err == nil {
		var response *pb.LeaseGrantResponse
		if response, err = e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 30}); err == nil {
			taken = append(taken, response.GetID())
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && len(taken) > 1500 {
		err = nil // more than anybody is given
	}
	a.try(fmt.Sprintf("grant %d leases (refused after %d)", many, len(taken)), err)
}
