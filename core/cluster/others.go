package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/spread"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// nodesVersion is the version of the format of the file of other nodes.
	nodesVersion = 1
	// maxNodes is how many other nodes are kept. In a larger cluster each node keeps different ones.
	maxNodes = 64
	// keepNodesEvery is how often the directory is looked through for nodes to keep: it changes with every status of every node.
	keepNodesEvery = 5 * time.Second
	// seenAgain is how old the times in the file may become while nothing else changes.
	seenAgain = 24 * time.Hour
	// askFirst is how long contact must be missing before other nodes are asked: a curator that restarts is back in less. The pauses between rounds of questions double up to askMost.
	askFirst = 5 * time.Second
	askMost  = time.Minute
	// askTogether is how many nodes one round asks. In a cluster without its store all nodes ask, and no answer helps them: so they ask few.
	askTogether = 8
	// maxNamed is how many curators are taken from the answer of one node. The answers of askTogether nodes count, the newest first: a node that lies takes no place of another's.
	maxNamed = 8
	// maxAnswer is the size of an answer, in bytes: 16 curators of the longest addresses.
	maxAnswer = 16 << 10
)

// answer is the curators that another node named, each host:port.
type answer struct {
	node     string
	curators []string
}

// nodesFile is the content of the file of other nodes.
type nodesFile struct {
	// Nodes are the nodes of the last directory first, then earlier ones, those seen last first.
	Nodes []keptNode `json:"nodes"`
}

// keptNode is another node that can be asked where a curator is.
type keptNode struct {
	ID string `json:"id"`
	// APIAddress is the host:port of the node's own API.
	APIAddress string `json:"api_address"`
	// Seen is when the directory last named the node at this address, to a day.
	Seen time.Time `json:"seen"`
}

func (k keptNode) same(other keptNode) bool {
	return k.ID == other.ID && k.APIAddress == other.APIAddress
}

// readNodes returns the nodes from earlier. A file that cannot be read is as good as none.
func readNodes(path string) ([]keptNode, error) {
	if path == "" {
		return nil, nil
	}
	var file nodesFile
	switch err := storage.ReadDocument(path, nodesVersion, &file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster: the file of the nodes known from earlier, %s, cannot be used, and is written anew: %w", path, err)
	}
	return file.Nodes[:min(len(file.Nodes), maxNodes)], nil
}

// mergeNodes returns the nodes to keep by a view, and whether the file is to be written for that: the nodes of the directory, and those that were kept before.
func mergeNodes(view *View, before []keptNode, now time.Time) (list []keptNode, changed bool) {
	present := make(map[string]string)
	var ids []string
	self := view.Node.GetId()
	for _, node := range view.Directory.GetNodes() {
		if _, err := hostPort(node.GetApiAddress()); err == nil && node.GetNodeId() != self {
			present[node.GetNodeId()] = node.GetApiAddress()
			ids = append(ids, node.GetNodeId())
		}
	}
	for _, id := range spread.Order(self, ids) {
		list = append(list, keptNode{ID: id, APIAddress: present[id], Seen: now})
	}
	earlier := slices.DeleteFunc(slices.Clone(before), func(k keptNode) bool { return slices.ContainsFunc(list, k.same) })
	slices.SortStableFunc(earlier, func(a, b keptNode) int { return cmp.Compare(b.Seen.Unix(), a.Seen.Unix()) })
	list = append(list, earlier...)
	list = list[:min(len(list), maxNodes)]
	changed = !slices.EqualFunc(list, before, func(a, b keptNode) bool { return a.same(b) && a.Seen.Sub(b.Seen) < seenAgain })
	return list, changed
}

// keepNodes keeps the other nodes of the directory, in memory and in the file, until the context ends.
func (c *Client) keepNodes(ctx context.Context) {
	views := c.view.Watch()
	unwritten := false
	keep := func() {
		view, _ := views.Latest()
		if view == nil {
			return
		}
		before, _ := c.nodes.Get()
		list, changed := mergeNodes(view, before, c.config.Now().UTC())
		if changed {
			c.nodes.Set(list)
		}
		if !changed && !unwritten {
			return
		}
		err := c.writeNodes(list)
		if err != nil && !unwritten {
			c.config.Log.Warn("the cluster's nodes cannot be kept for the next start; trying again while the node runs", "error", err)
		}
		unwritten = err != nil
	}
	defer keep() // what was said last
	for {
		select {
		case <-ctx.Done():
			return
		case <-views.Changed():
			keep()
		}
		if !sleep(ctx, keepNodesEvery) {
			return
		}
	}
}

func (c *Client) writeNodes(list []keptNode) error {
	if c.config.Nodes == "" {
		return nil
	}
	return storage.WriteDocument(c.config.Nodes, nodesVersion, nodesFile{Nodes: list}, 0o600)
}

// askNodes asks other nodes where curators are while there is no contact, until the context ends: all curators may have moved while this node was off.
func (c *Client) askNodes(ctx context.Context) {
	has := func(ok bool) func(membership.Contact) bool {
		return func(contact membership.Contact) bool { return contact.OK == ok }
	}
	next, pause := 0, askFirst
	for ctx.Err() == nil {
		if _, err := c.contact.Wait(ctx, has(false)); err != nil {
			return
		}
		waiting, cancel := context.WithTimeout(ctx, pause)
		_, err := c.contact.Wait(waiting, has(true))
		cancel()
		if err == nil {
			pause = askFirst
			c.asked.Set(nil) // the directory names the curators now
			continue
		}
		pause = min(2*pause, askMost)
		all, _ := c.nodes.Get()
		node, _ := c.config.Identity.Get()
		if node == nil || len(node.Key) == 0 || len(node.CA) == 0 {
			continue
		}
		var answers sync.WaitGroup
		for range min(askTogether, len(all)) {
			of := all[next%len(all)]
			next++
			answers.Go(func() { c.askNode(ctx, of, node) })
		}
		answers.Wait()
	}
}

// askNode asks one node, and has the curators be tried that it names.
func (c *Client) askNode(ctx context.Context, of keptNode, node *identity.Identity) {
	answered, err := c.curatorsBy(ctx, of, node)
	if err != nil {
		c.config.Log.Debug("another node does not say where curators are", "node", of.ID, "address", of.APIAddress, "error", err)
		return
	}
	c.takeAnswer(of, answered)
}

// takeAnswer has the curators be tried that a node named, in place of those that it named before.
func (c *Client) takeAnswer(of keptNode, answered []string) {
	var named []string
	for _, text := range answered {
		if address, err := hostPort(text); err == nil && len(address) <= limits.Address && len(named) < maxNamed {
			named = append(named, address)
		}
	}
	known := c.known()
	fresh := slices.DeleteFunc(slices.Clone(named), func(address string) bool { return slices.Contains(known, address) })
	if len(fresh) > 0 {
		c.config.Log.Info("another node names curators that this one did not know", "node", of.ID, "address", of.APIAddress, "curators", fresh)
	}
	c.asked.Update(func(before []answer) []answer {
		others := slices.DeleteFunc(slices.Clone(before), func(a answer) bool { return a.node == of.ID })
		return append([]answer{{of.ID, named}}, others[:min(len(others), askTogether-1)]...)
	})
}

// curatorsBy returns the curators that another node knows. That node proves who it is by its SVID. This one proves itself by its key, of which its ID is made: its own SVID may have run out.
func (c *Client) curatorsBy(ctx context.Context, of keptNode, node *identity.Identity) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	proof, err := names.SelfSigned(node.Key, c.config.Now())
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+of.APIAddress,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{proof},
			// A node's certificate has no DNS name. VerifyConnection verifies its chain and its SPIFFE ID.
			InsecureSkipVerify: true,
			VerifyConnection: func(state tls.ConnectionState) error {
				return names.VerifyNode(state.PeerCertificates, node.CA, node.TrustDomain, of.ID, c.config.Now())
			},
		})),
		grpc.WithContextDialer(c.config.Dial), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := nodev1.NewNodeServiceClient(conn).ListCurators(ctx, &nodev1.ListCuratorsRequest{})
	return answer.GetCurators(), err
}
