package fakecluster

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StartLameCurator serves, besides the one that works, a curator whose store is away: it lets everybody in and answers nothing. If it is honest it says that it has begun with nothing
// of what it is asked. Every node says where it is, before the other.
func (c *Cluster) StartLameCurator(honest bool) error {
	refused := status.New(codes.Unavailable, "the store has no leader")
	if honest {
		var err error
		if refused, err = refused.WithDetails(new(errdetails.RetryInfo)); err != nil {
			return err
		}
	}
	certificate, err := c.curatorCertificate()
	if err != nil {
		return err
	}
	address, _, err := c.serveTLS(certificate, func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		c.Update(func() { c.lameCalls++ })
		return refused.Err()
	}))
	c.Update(func() { c.lame = address })
	return err
}

// LameCalls is how often a lame curator was called.
func (c *Cluster) LameCalls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lameCalls
}

// curators are the addresses that nodes tell. The cluster is locked.
func (c *Cluster) curators() []string {
	if c.lame != "" {
		return []string{c.lame, c.curator}
	}
	return []string{c.curator}
}
