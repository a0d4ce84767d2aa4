package store

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// Damage is what the leader has found about a member whose data differs from that of others.
type Damage struct {
	// MemberID is the member's, Node that on which it runs.
	MemberID, Node string
	// Reason says with whose data it differs, and what to do.
	Reason string
	// Certain is whether a majority of the members has other data. Otherwise it cannot be told which of them is right.
	Certain bool
}

// damages are those that the leader has noted, of the present members, as the local one has them.
func (s *Store) damages() (found []Damage) {
	answer, err := s.etcd.Server.KV().Range(context.Background(), []byte(peers.DamagedPrefix), []byte(clientv3.GetPrefixRangeEnd(peers.DamagedPrefix)), mvcc.RangeOptions{})
	if err != nil || len(answer.KVs) == 0 {
		return nil
	}
	for _, member := range s.Peers() {
		for _, noted := range answer.KVs {
			if certain, of := peers.DamageOf(string(noted.Key), member.ID); of {
				found = append(found, Damage{MemberID: peers.FormatMember(member.ID), Node: member.Node, Reason: string(noted.Value), Certain: certain})
			}
		}
	}
	return found
}

// Distrusted says why nobody is to use the local member; empty: its data is as good as that of the others, as far as is known.
func (s Status) Distrusted() string {
	for _, damage := range s.Damages {
		if damage.MemberID == s.MemberID && damage.Certain {
			return "the data of this node's member of the store is damaged: " + damage.Reason
		}
	}
	return ""
}

// damaged names the members whose data is not to be trusted.
func (s Status) damaged() string {
	var said []string
	for _, damage := range s.Damages {
		said = append(said, fmt.Sprintf("the member of %s is damaged: %s", damage.Node, damage.Reason))
	}
	return strings.Join(said, "; ")
}
