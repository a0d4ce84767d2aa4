package cache

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// told is a source whose watch tells what it is given, and ends.
type told []*clientv3.Event

func (t told) ReadAll(context.Context) (*store.State, error) { panic("nothing is read") }

func (t told) Watch(context.Context, int64) clientv3.WatchChan {
	watch := make(chan clientv3.WatchResponse, 1)
	watch <- clientv3.WatchResponse{Events: slices.Clone(t)}
	close(watch)
	return watch
}

// What is in no snapshot is in none: a certificate of each role of each node, for one. The watch has come to it all the same. And a report that nobody is told of is no news.
func TestWakesNobody(t *testing.T) {
	at := func(key string, revision int64, record proto.Message) *clientv3.Event {
		value, err := proto.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: revision}}
	}
	status := at("status/reeve-1", 5, &clusterv1.NodeStatus{NodeId: "reeve-1"})
	certificate := at("issued/node/reeve-1", 6, new(clusterv1.NodeStatus))
	operator := at("operators/vera", 5, new(clusterv1.NodeStatus))
	gone := func(key string) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: 6}}
	}
	for name, test := range map[string]struct {
		source         told
		snapshot, news bool
	}{
		"a certificate":               {told{certificate}, false, false},
		"a curator that is elected":   {told{at("steward/1", 6, new(clusterv1.NodeStatus))}, false, false},
		"a status":                    {told{at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-1", Version: "2"})}, true, false},
		"a status that is shown":      {told{at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-1", Addresses: []string{"192.0.2.1"}})}, true, true},
		"a heartbeat":                 {told{at("heartbeat/reeve-1", 6, new(clusterv1.NodeStatus))}, true, true},
		"a heartbeat of a stranger":   {told{at("heartbeat/reeve-2", 6, new(clusterv1.NodeStatus))}, true, false},
		"a status, and a certificate": {told{status, certificate}, true, false},
		"a record that is damaged":    {told{at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-2"})}, true, false},
		"a status that goes":          {told{gone("status/reeve-1")}, true, false},
		"how far the store is":        {told{at("consensus/state", 6, new(clusterv1.NodeStatus))}, true, false},
		"what the store is to be":     {told{at("consensus/desired", 6, new(clusterv1.NodeStatus))}, true, true},
		"a record":                    {told{at("operators/vera", 6, new(clusterv1.NodeStatus))}, true, true},
		"one that comes and goes":     {told{operator, gone("operators/vera")}, true, true},
		"a start, and a status":       {told{at("incarnations/reeve-1", 5, new(clusterv1.NodeStatus)), at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-1"})}, true, true},
	} {
		c := New(test.source, hclog.NewNullLogger())
		before := store.Genesis{Node: &clusterv1.NodeRecord{Id: "reeve-1", State: clusterv1.NodeState_NODE_STATE_UP}}.State().Apply(4, nil)
		c.publish(before, false)
		first, _ := c.snapshots.Get()
		if news, _ := c.news.Get(); news != first {
			t.Errorf("%s: the first snapshot is no news", name)
		}
		after, err := c.follow(t.Context(), before)
		if err == nil || after.Revision != 6 {
			t.Errorf("%s: %v, %v", name, after, err)
		}
		now, _ := c.snapshots.Get()
		news, _ := c.news.Get()
		if (now != first) != test.snapshot || (news != first) != test.news || news != first && news != now {
			t.Errorf("%s: there is another snapshot: %t, and it is news: %t", name, now != first, news != first)
		}
	}
}
