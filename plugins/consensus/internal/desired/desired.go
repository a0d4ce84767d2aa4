package desired

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// maxUsers bounds the users of a document: far more than a cluster has roles, few enough that each can be looked at.
const maxUsers = 10_000

// Key is where the document is kept.
func Key(clusterUser string) string {
	return consensusv1.UserPrefix(clusterUser) + consensusv1.DesiredStateKey
}

// Parse reads a DesiredState and refuses one that cannot be meant. An empty value would mean that nobody is to use the store; since a
// value that was lost looks the same, and every store has a member to name, it is refused. A user may be wanted and to be wiped: then it is wanted.
func Parse(content []byte) (*consensusv1.DesiredState, error) {
	if len(content) == 0 {
		return nil, errors.New("the document is empty")
	}
	desired := &consensusv1.DesiredState{}
	if err := proto.Unmarshal(content, desired); err != nil {
		return nil, fmt.Errorf("not a DesiredState: %w", err)
	}
	if len(desired.Users) > maxUsers || len(desired.WipedUsers) > maxUsers {
		return nil, fmt.Errorf("%d users and %d to be wiped, more than %d", len(desired.Users), len(desired.WipedUsers), maxUsers)
	}
	seen := make(map[string]string, len(desired.Users))
	for n, user := range desired.Users {
		if !identity.ValidConsensusUser(user.GetConsensusUser()) {
			return nil, fmt.Errorf("users[%d]: %q cannot be a ConsensusUser", n, user.GetConsensusUser())
		}
		if role, twice := seen[user.ConsensusUser]; twice {
			return nil, fmt.Errorf("users[%d]: the user %s is given to the role %s and to the role %s", n, user.ConsensusUser, role, user.Role)
		}
		if user.BytesQuota < 0 || user.LeasesQuota < 0 {
			return nil, fmt.Errorf("users[%d]: the user %s may have %d bytes and %d leases: less than nothing", n, user.ConsensusUser, user.BytesQuota, user.LeasesQuota)
		}
		seen[user.ConsensusUser] = user.Role
	}
	for n, member := range desired.ReplacedMembers {
		if _, err := peers.ParseMember(member); err != nil {
			return nil, fmt.Errorf("replaced_members[%d]: %w", n, err)
		}
	}
	for n, user := range desired.WipedUsers {
		if !identity.ValidConsensusUser(user) {
			return nil, fmt.Errorf("wiped_users[%d]: %q cannot be a ConsensusUser", n, user)
		}
	}
	return desired, nil
}

// ParseState reads a StoreState.
func ParseState(content []byte) (*consensusv1.StoreState, error) {
	state := &consensusv1.StoreState{}
	if err := proto.Unmarshal(content, state); err != nil {
		return nil, fmt.Errorf("not a StoreState: %w", err)
	}
	return state, nil
}
