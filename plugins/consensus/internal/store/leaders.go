package store

import (
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// leaders counts elections.
type leaders struct{ changes atomic.Uint64 }

// follow counts until the server has stopped. A term has one leader, so one that is elected again counts again.
func (l *leaders) follow(server *etcdserver.EtcdServer) {
	for last := uint64(0); ; {
		changed := server.LeaderChangedNotify()
		if term := server.Term(); server.Leader() != 0 && term != last {
			last = term
			l.changes.Add(1)
		}
		select {
		case <-changed:
		case <-server.StopNotify():
			return
		}
	}
}
