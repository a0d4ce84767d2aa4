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

// What is in no snapshot is no news: a certificate of each role of each node, for one. The watch has come to it all the same.
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
	gone := &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte("status/reeve-1"), ModRevision: 6}}
	for name, test := range map[string]struct {
		source told
		news   bool
	}{
		"a certificate":               {told{certificate}, false},
		"a curator that is elected":   {told{at("steward/1", 6, new(clusterv1.NodeStatus))}, false},
		"a status":                    {told{at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-1"})}, true},
		"a status, and a certificate": {told{status, certificate}, true},
		"a record that is damaged":    {told{at("status/reeve-1", 6, &clusterv1.NodeStatus{NodeId: "reeve-2"})}, true},
		"a status that goes":          {told{gone}, true},
		"what the store is to be":     {told{at("consensus/desired", 6, new(clusterv1.NodeStatus))}, true},
	} {
		c := New(test.source, hclog.NewNullLogger())
		before := store.Genesis{Node: &clusterv1.NodeRecord{Id: "reeve-1"}}.State().Apply(4, nil)
		c.publish(before)
		first, _ := c.snapshots.Get()
		after, err := c.follow(t.Context(), before)
		if err == nil || after.Revision != 6 {
			t.Errorf("%s: %v, %v", name, after, err)
		}
		if now, _ := c.snapshots.Get(); (now != first) != test.news {
			t.Errorf("%s: it is news: %t", name, now != first)
		}
	}
}
