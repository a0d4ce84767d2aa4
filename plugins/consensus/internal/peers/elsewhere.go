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
)

// elsewhere are the host:port at which the member of an address is looked for besides. Only a member that is known to have the address is looked for: otherwise whoever answers
// would be taken for it.
func (o *Outgoing) elsewhere(address string) (others []string) {
	_, port, err := net.SplitHostPort(address)
	if err != nil || o.config.Elsewhere == nil || len(o.config.Places.At(address)) == 0 {
		return nil
	}
	for _, host := range o.config.Elsewhere() {
		if other := net.JoinHostPort(host, port); other != address && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others
}

// first returns the first connection that is made: to the known address, or, if there is none to that soon, to one of the others. It waits for all that it began.
func first(ctx context.Context, connect func(ctx context.Context, at string) (net.Conn, error), known string, others []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer, 1+len(others))
	var trying sync.WaitGroup
	try := func(to func() (net.Conn, error)) {
		trying.Go(func() {
			conn, err := to()
			answers <- answer{conn, err}
		})
	}
	try(func() (net.Conn, error) { return connect(ctx, known) })
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
		for _, other := range others {
			waiting++
			try(func() (net.Conn, error) { return resolved(ctx, connect, other) })
		}
		others = nil
	}
	cancel()
	trying.Wait()
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
func resolved(ctx context.Context, connect func(ctx context.Context, at string) (net.Conn, error), hostPort string) (net.Conn, error) {
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
