package reconcile

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// maxUsers bounds the users of a document: far more than a cluster has roles, few enough that each can be looked at.
const maxUsers = 10_000

// Parse reads a DesiredState and refuses one that cannot be meant. An empty value would mean that nobody is to use the store; since a
// value that was lost looks the same, and every store has a member to name, it is refused.
func Parse(content []byte) (*consensusv1.DesiredState, error) {
	if len(content) == 0 {
		return nil, errors.New("the document is empty")
	}
	desired := &consensusv1.DesiredState{}
	if err := proto.Unmarshal(content, desired); err != nil {
		return nil, fmt.Errorf("not a DesiredState: %w", err)
	}
	if len(desired.Users) > maxUsers {
		return nil, fmt.Errorf("%d users, more than %d", len(desired.Users), maxUsers)
	}
	seen := make(map[string]string, len(desired.Users))
	for n, user := range desired.Users {
		if !identity.ValidConsensusUser(user.GetConsensusUser()) {
			return nil, fmt.Errorf("users[%d]: %q cannot be a ConsensusUser", n, user.GetConsensusUser())
		}
		if role, twice := seen[user.ConsensusUser]; twice {
			return nil, fmt.Errorf("users[%d]: the user %s is given to the role %s and to the role %s", n, user.ConsensusUser, role, user.Role)
		}
		seen[user.ConsensusUser] = user.Role
	}
	return desired, nil
}
