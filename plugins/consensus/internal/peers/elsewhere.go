package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// knownFirst is how long a member has to answer at its own address before it is looked for elsewhere.
	knownFirst = 300 * time.Millisecond
	// maxElsewhere bounds the addresses that one DNS name may stand for.
	maxElsewhere = 16
	// lookEvery is how long after a member was looked for elsewhere it is looked for again.
	lookEvery = 5 * time.Second
)

// look is when the member of an address was last looked for elsewhere, and where it was found; empty: it was not.
type look struct {
	began time.Time
	found string
}

// elsewhere are the host:port at which the member of an address is looked for besides, and the IDs of whom it may be. Only a member that is known to have the address is looked for: otherwise whoever answers
// would be taken for it. It is looked for once in a while, and meanwhile only where it was found: etcd dials many times a second while a member is down.
func (o *Outgoing) elsewhere(address string) (others []string, members []uint64) {
	_, port, err := net.SplitHostPort(address)
	if members = o.membersAt(address); err != nil || len(members) == 0 {
		return nil, nil
	}
	now := o.config.Now()
	o.mu.Lock()
	last, ok := o.looks[address]
	recent := ok && now.Sub(last.began) < lookEvery
	if !recent {
		o.looks[address] = look{began: now}
	}
	o.mu.Unlock()
	if recent && last.found == "" {
		return nil, nil
	} else if recent {
		return []string{last.found}, members
	}
	for _, host := range o.config.Elsewhere() {
		if other := net.JoinHostPort(host, port); other != address && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others, members
}

// connectElsewhere connects to one of the members if it is there, and remembers that.
func (o *Outgoing) connectElsewhere(ctx context.Context, network, address, at string, within limits, members []uint64) (net.Conn, error) {
	conn, err := o.connect(ctx, network, at, &outgoing{address: address, members: members}, within)
	if err == nil {
		o.mu.Lock()
		o.looks[address] = look{o.looks[address].began, at}
		o.mu.Unlock()
	}
	return conn, err
}

// dialer connects to an address.
type dialer func(ctx context.Context, at string) (net.Conn, error)

// first returns the first connection that is made: to the known address, or, if there is none to that soon, to one of the others, for which it asks then. It waits for all that it began.
func first(ctx context.Context, known func(ctx context.Context) (net.Conn, error), elsewhere func() ([]string, dialer)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer)
	var trying sync.WaitGroup
	try := func(to func() (net.Conn, error)) {
		trying.Go(func() {
			conn, err := to()
			answers <- answer{conn, err}
		})
	}
	try(func() (net.Conn, error) { return known(ctx) })
	waiting, late := 1, time.NewTimer(knownFirst)
	defer late.Stop()
	var won net.Conn
	var problems []error
	for waiting > 0 && won == nil {
		select {
		case got := <-answers:
			waiting--
			if won = got.conn; won != nil {
				continue
			}
			problems = append(problems, got.err)
		case <-late.C:
		}
		if elsewhere == nil {
			continue
		}
		others, connect := elsewhere()
		for _, other := range others {
			waiting++
			try(func() (net.Conn, error) { return resolved(ctx, connect, other) })
		}
		elsewhere = nil
	}
	cancel()
	defer trying.Wait()
	for ; waiting > 0; waiting-- {
		// Another one was as fast.
		if got := <-answers; got.conn != nil {
			_ = got.conn.Close()
		}
	}
	if won == nil {
		return nil, errors.Join(problems...)
	}
	return won, nil
}

// resolved connects to one after the other of the addresses that a host stands for now: of a name with several, only one may be the member's.
func resolved(ctx context.Context, connect dialer, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return connect(ctx, hostPort)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("cannot find the address of %s: %w", host, err)
	}
	var problems []error
	for _, ip := range found[:min(len(found), maxElsewhere)] {
		conn, err := connect(ctx, net.JoinHostPort(ip.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}
