package store

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
)

// Copied reads the records that are in a copy of the store. Whether a cluster could begin again with that copy is what it says in the end.
type Copied struct {
	state *State
	key   bool
	// Records is how many there were, of any kind.
	Records int64
}

// NewCopied returns one that has read nothing.
func NewCopied() *Copied { return &Copied{state: newState(0)} }

// Add reads a record.
func (c *Copied) Add(key, value []byte) {
	c.Records++
	if string(key) == keySigningKey {
		record := new(curatorv1.SigningKey)
		c.key = proto.Unmarshal(value, record) == nil && len(record.GetPrivateKey()) > 0
		return
	}
	c.state.put(&mvccpb.KeyValue{Key: key, Value: value})
}

// Check returns what is wrong with them.
func (c *Copied) Check() error {
	problems := []error{c.state.Check()}
	for name, there := range map[string]bool{keyCluster: c.state.Cluster != nil, keyCertificates: len(c.state.CA) > 0, keySigningKey: c.key, prefixNodes: len(c.state.Nodes) > 0} {
		if !there {
			problems = append(problems, fmt.Errorf("it has no record %s that can be read", name))
		}
	}
	return errors.Join(problems...)
}
