package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// watching is how the Watch stream is, for the judge of contact.
type watching struct {
	// up says that a stream is open and has delivered.
	up bool
	// since is when up became what it is.
	since time.Time
	// problem is why it is not up; empty: nothing is known to be wrong.
	problem string
}

// errSilent ends a stream that was opened and then delivered nothing.
var errSilent = fmt.Errorf("the curator took the watch and sent nothing for %s", callTimeout)

// watch follows one Watch stream to its end.
func (s *session) watch(ctx context.Context, made func()) (err error) {
	var delivered time.Time
	opened := time.Now()
	defer func() {
		// A stream that delivers and ends at once is to be opened ever more slowly.
		if !delivered.IsZero() && time.Since(delivered) > maxPause {
			made()
		}
		problem := ""
		if ctx.Err() == nil {
			problem = explain(err)
			sent := time.Now()
			if delivered.IsZero() {
				sent = opened
			}
			s.felt(watchPulse, sent, err)
		}
		s.watching.Update(func(before watching) watching {
			since := before.since
			if before.up || since.IsZero() {
				since = time.Now()
			}
			return watching{since: since, problem: problem}
		})
	}()
	stream, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout, func() { cancel(errSilent) })
	defer late.Stop()
	responses, err := s.api.Watch(stream, &clusterv1.WatchRequest{})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		response, err := responses.Recv()
		switch {
		case errors.Is(context.Cause(stream), errSilent):
			return errSilent
		case errors.Is(err, io.EOF):
			return errors.New("the curator ended the watch")
		case err != nil:
			return err
		}
		if err := s.take(response); err != nil {
			return err
		}
		if first {
			late.Stop()
			delivered = time.Now()
			s.watching.Set(watching{up: true, since: delivered})
			s.felt(watchPulse, delivered, nil)
			s.streams.Update(func(n int) int { return n + 1 })
		}
	}
}

// take publishes what a Watch message says, as far as it is new. A message that cannot be meant for this node is an error: acting on it
// would stop the node's roles.
func (s *session) take(response *clusterv1.WatchResponse) error {
	if id := response.GetNode().GetId(); id != s.to.nodeID {
		return fmt.Errorf("the curator sent the record of node %q to node %s", id, s.to.nodeID)
	}
	for _, der := range response.GetCaCertificates() {
		if _, err := x509.ParseCertificate(der); err != nil {
			return fmt.Errorf("the curator sent a damaged CA certificate: %w", err)
		}
	}
	if n := len(response.GetOwnerPublicKey()); n != 0 && n != ed25519.PublicKeySize {
		return fmt.Errorf("the curator sent an owner key of %d bytes, not %d", n, ed25519.PublicKeySize)
	}
	if s.last != nil && proto.Equal(s.last, response) {
		return nil
	}
	if err := s.older(response); err != nil {
		return err
	}
	if before := s.last.GetRevision(); response.GetRevision() < before {
		// It is followed all the same: the curator sees to it that the node's own record is not an older one, and a store that was
		// restored from a copy is the truth.
		s.config.Log.Info("the curator's view is older than the last one", "revision", response.GetRevision(), "before", before)
	}
	s.last = response
	directory := response.GetDirectory()
	if directory == nil {
		directory = &hostv1.Directory{}
	}
	s.credentials.Update(func(credentials identity.Credentials) identity.Credentials {
		if len(response.GetCaCertificates()) > 0 {
			credentials.CA = response.GetCaCertificates()
		}
		if len(response.GetOwnerPublicKey()) > 0 {
			credentials.Owner = response.GetOwnerPublicKey()
		}
		return credentials
	})
	s.view.Set(&View{
		Revision:  response.GetRevision(),
		Node:      response.GetNode(),
		Plugins:   response.GetPlugins(),
		Directory: directory,
		Operators: response.GetOperators(),
		Policy:    response.GetPolicy(),
	})
	return nil
}

// believeOlder is how long curators of other nodes must have an older record of this node than it has, before that is taken for the truth: a curator that lost
// touch with the others finds out in less, and a store that was restored from a copy stays as it is.
const believeOlder = 10 * time.Second

// older refuses what a curator of another node says as long as its record of this node may only be behind.
func (s *session) older(response *clusterv1.WatchResponse) error {
	has, known := response.GetNode().GetGeneration(), s.last.GetNode().GetGeneration()
	if s.to.own || has >= known {
		s.behind = time.Time{}
		return nil
	}
	if s.behind.IsZero() {
		s.behind = time.Now()
	}
	if time.Since(s.behind) < believeOlder {
		return fmt.Errorf("the curator is behind: it has generation %d of this node's record, which is at %d", has, known)
	}
	s.config.Log.Warn("the cluster has an older record of this node than it had: its store was restored from a copy", "generation", has, "before", known)
	s.behind = time.Time{}
	return nil
}
