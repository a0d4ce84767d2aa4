package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
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
	responses, err := s.api.Watch(stream, &clusterv1.WatchRequest{Differences: true, Parts: true, OmitSame: true})
	if err != nil {
		return err
	}
	var directory *hostv1.Directory  // that of the stream
	var own *clusterv1.WatchResponse // the last message of the stream that had what is the node's own
	for first := true; ; {
		response, err := responses.Recv()
		switch {
		case errors.Is(context.Cause(stream), errSilent):
			return errSilent
		case errors.Is(err, io.EOF):
			return errors.New("the curator ended the watch")
		case err != nil:
			return err
		}
		if directory, err = directoryIn(response, directory); err != nil {
			return err
		}
		if response.GetMore() {
			if first {
				late.Reset(callTimeout)
			}
			continue
		}
		response.Directory, response.Difference = directory, nil
		if response.GetNode() != nil {
			own = response
		} else if own != nil {
			response = sameOwn(response, own)
		}
		directory = ofStore(directory, response)
		response.Directory = directory
		if err := s.take(response); err != nil {
			return err
		}
		if s.checkStore() != nil {
			s.refuse(nil)
		}
		if first {
			first = false
			late.Stop()
			delivered = time.Now()
			s.watching.Set(watching{up: true, since: delivered})
			s.felt(watchPulse, delivered, nil)
			s.streams.Update(func(n int) int { return n + 1 })
		}
	}
}

// sameOwn returns a message in which what is the node's own was left out, with that of the one before.
func sameOwn(response, before *clusterv1.WatchResponse) *clusterv1.WatchResponse {
	return &clusterv1.WatchResponse{
		Revision: response.GetRevision(), Directory: response.GetDirectory(), Node: before.GetNode(), Plugins: before.GetPlugins(), CaCertificates: before.GetCaCertificates(),
		OwnerPublicKey: before.GetOwnerPublicKey(), Operators: before.GetOperators(), Policy: before.GetPolicy(),
		StoreGeneration: before.GetStoreGeneration(), StoreGenerationId: before.GetStoreGenerationId(),
		StoreRecovered: before.GetStoreRecovered(),
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
	if err := s.follows(response); err != nil {
		return err
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
		Directory: response.GetDirectory(),
		Operators: response.GetOperators(),
		Policy:    response.GetPolicy(),
	})
	return nil
}

// directoryIn returns the directory that a message brings, or makes of the one that its stream has brought so far.
func directoryIn(response *clusterv1.WatchResponse, before *hostv1.Directory) (*hostv1.Directory, error) {
	difference := response.GetDifference()
	switch {
	case response.GetDirectory() != nil:
		return response.GetDirectory(), nil
	case difference == nil && before == nil:
		return &hostv1.Directory{}, nil
	case difference == nil:
		return before, nil
	case difference.GetFrom() != before.GetRevision() || before == nil:
		return nil, fmt.Errorf("the curator sent what has changed of the directory since revision %d to a node that has that of revision %d: the watch begins again",
			difference.GetFrom(), before.GetRevision())
	}
	changed := make(map[string]*hostv1.DirectoryNode, len(difference.GetNodes())+len(difference.GetGone()))
	for _, id := range difference.GetGone() {
		changed[id] = nil
	}
	for _, node := range difference.GetNodes() {
		changed[node.GetNodeId()] = node
	}
	// What others have been given stays as it is.
	directory := &hostv1.Directory{Revision: difference.GetRevision(), Nodes: make([]*hostv1.DirectoryNode, 0, len(before.GetNodes())+len(difference.GetNodes()))}
	for _, node := range before.GetNodes() {
		if _, is := changed[node.GetNodeId()]; !is {
			directory.Nodes = append(directory.Nodes, node)
		}
	}
	for _, node := range difference.GetNodes() {
		if changed[node.GetNodeId()] == node { // once, also if it is named twice
			directory.Nodes = append(directory.Nodes, node)
		}
	}
	slices.SortFunc(directory.Nodes, func(a, b *hostv1.DirectoryNode) int { return cmp.Compare(a.GetNodeId(), b.GetNodeId()) })
	return directory, nil
}

// ofStore returns a directory that says which store it is of. The node follows that store, or does not take the directory.
func ofStore(directory *hostv1.Directory, response *clusterv1.WatchResponse) *hostv1.Directory {
	number, id := response.GetStoreGeneration(), response.GetStoreGenerationId()
	if directory.StoreGeneration != nil && directory.GetStoreGeneration() == number && bytes.Equal(directory.GetStoreGenerationId(), id) {
		return directory
	}
	return &hostv1.Directory{Revision: directory.GetRevision(), Nodes: directory.GetNodes(), StoreGeneration: &number, StoreGenerationId: id}
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
