package crowd

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// unread is a codec that leaves messages as they came, in the unknown fields of the message that is received into: thousands of nodes that each read the whole
// directory would be what is measured.
type unread struct{}

// Name implements encoding.CodecV2.
func (unread) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (unread) Marshal(message any) (mem.BufferSlice, error) {
	value, err := proto.Marshal(message.(proto.Message))
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(value)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (unread) Unmarshal(data mem.BufferSlice, message any) error {
	into, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T is no message", message)
	}
	into.ProtoReflect().SetUnknown(data.Materialize())
	return nil
}

// The fields of WatchResponse and of Directory that are read.
const (
	fieldNode       = 2
	fieldDirectory  = 4
	fieldDifference = 9

	fieldDirectoryRevision = 1
	fieldDirectoryNodes    = 2

	fieldDifferenceFrom     = 1
	fieldDifferenceRevision = 2
	fieldDifferenceNodes    = 3
)

// news is what a message says, as far as it is looked at.
type news struct {
	node *clusterv1.NodeRecord
	// whole is whether the message brings the whole directory, and difference whether it brings what makes one of another, from a revision. Either is of a revision; nodes is its nodes, unread.
	whole, difference bool
	from, revision    uint64
	nodes             [][]byte
}

var errMalformed = errors.New("it is malformed")

// fields calls each with every field of a message: bytes for one that has a length, or else a number.
func fields(message []byte, each func(number protowire.Number, bytes []byte, varint uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		var bytes []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		if err := each(number, bytes, varint); err != nil {
			return err
		}
	}
	return nil
}

func read(message []byte) (*news, error) {
	found := new(news)
	return found, fields(message, func(number protowire.Number, bytes []byte, _ uint64) error {
		switch number {
		case fieldNode:
			found.node = new(clusterv1.NodeRecord)
			return proto.Unmarshal(bytes, found.node)
		case fieldDifference:
			found.difference = true
			return fields(bytes, func(number protowire.Number, bytes []byte, varint uint64) error {
				switch number {
				case fieldDifferenceFrom:
					found.from = varint
				case fieldDifferenceRevision:
					found.revision = varint
				case fieldDifferenceNodes:
					found.nodes = append(found.nodes, bytes)
				}
				return nil
			})
		case fieldDirectory:
			found.whole = true
			return fields(bytes, func(number protowire.Number, bytes []byte, varint uint64) error {
				switch number {
				case fieldDirectoryRevision:
					found.revision = varint
				case fieldDirectoryNodes:
					found.nodes = append(found.nodes, bytes)
				}
				return nil
			})
		}
		return nil
	})
}

// shows reports whether a message shows what is waited for.
func (n *news) shows(wanted *target) bool {
	for _, value := range n.nodes {
		node := new(hostv1.DirectoryNode)
		if err := proto.Unmarshal(value, node); err == nil && wanted.is(node) {
			return true
		}
	}
	return false
}
