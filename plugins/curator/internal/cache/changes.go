package cache

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// maxSteps is how many changes of the directory are kept, and maxShare of which part of its nodes a difference is made at most: for one who is further behind
	// the whole directory is as good.
	maxSteps = 128
	maxShare = 2
)

// step is one change of the directory: the revision that it had before, and the IDs of the nodes that changed.
type step struct {
	from    uint64
	changed []string
}

// Sendable is a directory as the messages of the watches carry it. All of these are encoded once, however many watches there are.
type Sendable struct {
	directory *hostv1.Directory
	steps     []step // how it has come about, the last one last; they follow one another

	mu          sync.Mutex
	whole       []byte
	parts       encoding
	differences map[uint64]*encoding
}

// encoding is what is sent of a directory to those who have the one of some revision, or none, made once: in messages that follow one another.
type encoding struct {
	once  sync.Once
	parts [][]byte
	err   error
}

// maxPart is how long the part of a directory in one message is, in bytes, apart from the node by which it is longer: a directory may be longer than any message.
const maxPart = 1 << 20

// after returns what a directory is after a change of the one before; before is nil for the first one, and for one of which nobody knows how it came about.
func after(before *Sendable, directory *hostv1.Directory, changed []string) *Sendable {
	sendable := &Sendable{directory: directory, differences: make(map[uint64]*encoding)}
	if before == nil {
		return sendable
	}
	kept := before.steps[max(0, len(before.steps)+1-maxSteps):]
	sendable.steps = append(slices.Clip(kept), step{from: before.directory.GetRevision(), changed: changed})
	return sendable
}

// Revision is that of the directory.
func (s *Sendable) Revision() uint64 { return s.directory.GetRevision() }

// Whole returns a WatchResponse that holds the directory and nothing else, encoded, for those who take no parts. What is encoded so may be put behind any other, and is not to be changed.
func (s *Sendable) Whole() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == nil {
		encoded, err := proto.Marshal(&clusterv1.WatchResponse{Directory: s.directory})
		if err != nil {
			return nil, err
		}
		s.whole = encoded
	}
	return s.whole, nil
}

// Parts returns what Whole does, in messages that follow one another.
func (s *Sendable) Parts() ([][]byte, error) {
	s.parts.once.Do(func() {
		s.parts.parts, s.parts.err = inParts(s.directory.GetNodes(), func(nodes []*hostv1.DirectoryNode, first bool) *clusterv1.WatchResponse {
			if first {
				return &clusterv1.WatchResponse{Directory: &hostv1.Directory{Revision: s.Revision(), Nodes: nodes}}
			}
			return &clusterv1.WatchResponse{Difference: &clusterv1.DirectoryDifference{From: s.Revision(), Revision: s.Revision(), Nodes: nodes}}
		})
	})
	return s.parts.parts, s.parts.err
}

// inParts encodes messages with some nodes each; each but the last says that there is more.
func inParts(nodes []*hostv1.DirectoryNode, message func(nodes []*hostv1.DirectoryNode, first bool) *clusterv1.WatchResponse) (parts [][]byte, err error) {
	for first := true; first || len(nodes) > 0; first = false {
		n, size := 0, 0
		for ; n < len(nodes) && size < maxPart; n++ {
			size += proto.Size(nodes[n])
		}
		response := message(nodes[:n], first)
		nodes = nodes[n:]
		response.More = len(nodes) > 0
		part, err := proto.Marshal(response)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// Since returns WatchResponses that hold what makes the directory of the one of an earlier revision and nothing else, encoded, which follow one another; or nil, if that is not known any
// more, or not shorter than the whole directory.
func (s *Sendable) Since(revision uint64) ([][]byte, error) {
	s.mu.Lock()
	made := s.differences[revision]
	if made == nil {
		made = new(encoding)
		s.differences[revision] = made
	}
	s.mu.Unlock()
	made.once.Do(func() {
		difference := s.since(revision)
		if difference == nil {
			return
		}
		made.parts, made.err = inParts(difference.GetNodes(), func(nodes []*hostv1.DirectoryNode, first bool) *clusterv1.WatchResponse {
			part := &clusterv1.DirectoryDifference{From: s.Revision(), Revision: s.Revision(), Nodes: nodes}
			if first {
				part.From, part.Gone = revision, difference.GetGone()
			}
			return &clusterv1.WatchResponse{Difference: part}
		})
	})
	return made.parts, made.err
}

func (s *Sendable) since(revision uint64) *clusterv1.DirectoryDifference {
	first := slices.IndexFunc(s.steps, func(step step) bool { return step.from == revision })
	if first < 0 {
		return nil
	}
	var changed []string
	for _, step := range s.steps[first:] {
		changed = append(changed, step.changed...)
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	if len(changed) > maxSteps && len(changed) > len(s.directory.GetNodes())/maxShare {
		return nil
	}
	difference := &clusterv1.DirectoryDifference{From: revision, Revision: s.Revision()}
	for _, id := range changed {
		at, is := slices.BinarySearchFunc(s.directory.GetNodes(), id, func(node *hostv1.DirectoryNode, id string) int { return cmp.Compare(node.GetNodeId(), id) })
		if is {
			difference.Nodes = append(difference.Nodes, s.directory.GetNodes()[at])
		} else {
			difference.Gone = append(difference.Gone, id)
		}
	}
	return difference
}
