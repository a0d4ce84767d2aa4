package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// slow is a store that answers what an operator reads of some keys only when it is told to.
type slow struct {
	clientv3.KV
	keys, operator string
	answer         chan struct{}

	mu       sync.Mutex
	now, max int
	began    chan struct{} // has one for each such read
}

func (s *slow) count(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += more
	s.max = max(s.max, s.now)
}

// Get implements clientv3.KV.
func (s *slow) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if caller, _ := auth.CallerOf(ctx); caller.Person != nil && caller.Person.Operator == s.operator && strings.HasPrefix(key, s.keys) {
		s.count(1)
		defer s.count(-1)
		s.began <- struct{}{}
		<-s.answer
	}
	return s.KV.Get(ctx, key, options...)
}

// A viewer who lists all the time, a hundred at once, has eight lists made at a time. The owner is answered meanwhile, and so is a node.
func TestListsOfAViewer(t *testing.T) {
	const calls, most = 100, 8
	reads := &slow{keys: "issued/", operator: "vera", answer: make(chan struct{}), began: make(chan struct{}, calls)}
	c := newClusterOn(t, etcd, func(config *server.Config) { reads.KV, config.Client.KV = config.Client.KV, reads })
	vera := c.addOperator("vera", roleViewer).client()
	var lists sync.WaitGroup
	for range calls {
		lists.Go(func() {
			if _, err := vera.ListCertificates(inTime(t), new(clusterv1.ListCertificatesRequest)); err != nil {
				t.Error(err)
			}
		})
	}
	for range most {
		select {
		case <-reads.began:
		case <-inTime(t).Done():
			t.Fatal("the lists of the viewer are not made")
		}
	}
	if _, err := c.asOwner().ListCertificates(inTime(t), new(clusterv1.ListCertificatesRequest)); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if _, err := c.asOwner().ListAudit(inTime(t), new(clusterv1.ListAuditRequest)); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if _, err := c.asNode().ReportStatus(inTime(t), &clusterv1.ReportStatusRequest{Status: new(clusterv1.NodeStatus)}); err != nil {
		t.Errorf("a node: %v", err)
	}
	close(reads.answer)
	lists.Wait()
	if reads.max != most {
		t.Errorf("%d lists of the viewer were made at a time", reads.max)
	}
}
