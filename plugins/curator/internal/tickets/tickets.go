package tickets

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

const (
	// DefaultLifetime is enough to carry a ticket to a machine, and MaxLifetime for a rack that is delivered next week: none lives longer, since a ticket that
	// was forgotten somewhere would be a key to the cluster.
	DefaultLifetime = 24 * time.Hour
	MaxLifetime     = 30 * 24 * time.Hour
	// MaxUses is how many nodes may register with one ticket.
	MaxUses = 1000
	// MaxNote is the length of a note in bytes.
	MaxNote = 256
	// OwnerName is what the holder of the owner key is called as the maker of a ticket. No operator is called so.
	OwnerName = "owner"
	// ShownFor is how long a ticket is still listed after it has expired, and how long it is kept.
	ShownFor = 24 * time.Hour
)

// New draws the ID and the secret of a ticket. The secret is to be handed out, and is kept nowhere.
func New(from *curatorv1.Ticket) (made *curatorv1.Ticket, secret []byte) {
	id := make([]byte, 8)
	secret = make([]byte, ticket.SecretSize)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	sum := sha256.Sum256(secret)
	made = proto.CloneOf(from)
	made.Id, made.SecretSha256 = hex.EncodeToString(id), sum[:]
	return made, secret
}

// Shown is a ticket as it is shown to people: without what its secret is checked by.
func Shown(kept *curatorv1.Ticket) *clusterv1.Ticket {
	return &clusterv1.Ticket{
		Id: kept.GetId(), Created: kept.GetCreated(), CreatedBy: kept.GetCreatedBy(), Expires: kept.GetExpires(), Uses: kept.GetUses(), Used: kept.GetUsed(),
		Roles: kept.GetRoles(), Labels: kept.GetLabels(), AutoApprove: kept.GetAutoApprove(), Note: kept.GetNote(),
	}
}

// Damaged is a ticket whose record cannot be read, as it is shown to people.
func Damaged(id string, problem error) *clusterv1.Ticket {
	return &clusterv1.Ticket{Id: limits.Clean(limits.Cut(id, MaxNote)), Problem: limits.Clean(limits.Cut(problem.Error(), MaxNote))}
}

// Proves reports whether a secret is that of a ticket, in a time that says nothing of either. It is never that of no ticket.
func Proves(kept *curatorv1.Ticket, secret []byte) bool {
	sum := sha256.Sum256(secret)
	expected := kept.GetSecretSha256()
	if len(expected) != sha256.Size {
		expected = make([]byte, sha256.Size)
	}
	return subtle.ConstantTimeCompare(sum[:], expected) == 1 && kept != nil
}

// Worthless says why nobody can register with a ticket any more; "": one can. It is for those only who have its secret.
func Worthless(kept *curatorv1.Ticket, now time.Time) string {
	switch {
	case !now.Before(kept.GetExpires().AsTime()):
		return "it expired at " + kept.GetExpires().AsTime().UTC().Format(time.RFC3339)
	case kept.GetUsed() >= kept.GetUses():
		return fmt.Sprintf("it is spent: %d of %d nodes have registered with it", kept.GetUsed(), kept.GetUses())
	}
	return ""
}

// Orphaned reports whether whoever made a ticket was revoked, or was the holder of an owner key that was replaced: nobody answers for it any more. That is no write of its own,
// since one transaction could not take all tickets of somebody who has made many.
func Orphaned(state *store.State, kept *curatorv1.Ticket) bool {
	return !stands(state, kept.GetCreatedBy(), kept.GetMadeBy())
}

// Unanswered reports whether a machine has registered with a ticket for which nobody answers any more.
func Unanswered(state *store.State, registration *clusterv1.Registration) bool {
	return !stands(state, registration.GetTicketCreatedBy(), registration.GetTicketMadeBy())
}

// stands reports whether the operator or the owner key of a name and an ID stands.
func stands(state *store.State, maker, id string) bool {
	if maker == OwnerName {
		maker = ""
	}
	if id == "" { // as an earlier version has it
		return maker == "" || state.Operators[maker] != nil
	}
	return state.HasPerson(maker, id)
}

// Forgotten returns the IDs of the tickets that are not even listed any more, sorted.
func Forgotten(state *store.State, now time.Time) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(state.Tickets)) {
		if kept := state.Tickets[id]; now.After(kept.GetExpires().AsTime().Add(ShownFor)) || Orphaned(state, kept) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Made counts the tickets that are listed by who made them.
func Made(state *store.State, now time.Time) rules.Made {
	made, forgotten := make(rules.Made), Forgotten(state, now)
	for id, kept := range state.Tickets {
		if _, gone := slices.BinarySearch(forgotten, id); !gone {
			made.Add(kept.GetCreatedBy())
		}
	}
	return made
}

// MadeBy returns the tickets of somebody, by the ID of the operator's record and the name in it, as they are shown, sorted.
func MadeBy(state *store.State, operator *clusterv1.Operator) (made []*clusterv1.Ticket) {
	for _, id := range slices.Sorted(maps.Keys(state.Tickets)) {
		if kept := state.Tickets[id]; is(operator, kept.GetCreatedBy(), kept.GetMadeBy()) {
			made = append(made, Shown(kept))
		}
	}
	return made
}

// WaitingWithout returns the IDs of the machines that wait by a ticket of the holder of an owner key that is not the given one, sorted.
func WaitingWithout(state *store.State, owner ed25519.PublicKey) []string {
	return waiting(state, func(by *clusterv1.Registration) bool {
		id := by.GetTicketMadeBy() // an earlier version has kept none, and its tickets stand
		return by.GetTicketCreatedBy() == OwnerName && id != "" && id != identity.OwnerKeyID(owner)
	})
}

// WaitingBy returns the IDs of the machines that have registered with a ticket of somebody and are no members yet, sorted.
func WaitingBy(state *store.State, operator *clusterv1.Operator) []string {
	return waiting(state, func(by *clusterv1.Registration) bool {
		return is(operator, by.GetTicketCreatedBy(), by.GetTicketMadeBy())
	})
}

func waiting(state *store.State, is func(*clusterv1.Registration) bool) (ids []string) {
	for _, id := range state.NodeIDs() {
		node := state.Nodes[id]
		waits := node.GetState() == clusterv1.NodeState_NODE_STATE_NEW || node.GetState() == clusterv1.NodeState_NODE_STATE_STANDBY
		if waits && is(node.GetRegistration()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// is reports whether the maker of a ticket, by name and ID, is somebody. An earlier version has kept no ID.
func is(operator *clusterv1.Operator, maker, id string) bool {
	return maker == operator.GetName() && (id == "" || id == operator.GetId())
}

// Spend returns the ticket after one more node has registered with it.
func Spend(kept *curatorv1.Ticket) *curatorv1.Ticket {
	after := proto.CloneOf(kept)
	after.Used++
	return after
}

// Forbids says what of a registration a ticket does not allow; "": all of it is allowed. It quotes only the ticket, and roles that are names.
func Forbids(kept *curatorv1.Ticket, roles []*clusterv1.RoleAssignment, labels map[string]string) string {
	for _, role := range roles {
		switch {
		case slices.Contains(kept.GetRoles(), role.GetRole()):
		case len(kept.GetRoles()) > 0:
			return fmt.Sprintf("it allows the roles %s, and not %s", strings.Join(kept.GetRoles(), ", "), role.GetRole())
		case kept.GetAutoApprove():
			return fmt.Sprintf("it approves by itself and names no roles, so it allows none, and not %s", role.GetRole())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(kept.GetLabels())) {
		if asked, ok := labels[key]; ok && asked != kept.GetLabels()[key] {
			return fmt.Sprintf("it says what the label %q is", key)
		}
	}
	if !kept.GetAutoApprove() {
		return ""
	}
	// What a label means others decide by, and nobody looks at this machine's.
	for key := range labels {
		if _, named := kept.GetLabels()[key]; !named {
			allowed := "no labels, and the machine may choose none"
			if len(kept.GetLabels()) > 0 {
				allowed = "the labels " + strings.Join(slices.Sorted(maps.Keys(kept.GetLabels())), ", ") + ", and the machine may choose no others"
			}
			return "it approves by itself and names " + allowed
		}
	}
	return ""
}

// Labels is the labels of a node that registers with a ticket and asks for some itself.
func Labels(kept *curatorv1.Ticket, asked map[string]string) map[string]string {
	labels := maps.Clone(asked)
	if labels == nil && len(kept.GetLabels()) > 0 {
		labels = make(map[string]string)
	}
	maps.Copy(labels, kept.GetLabels())
	return labels
}

// Expires is when a ticket ends that is made now to live for so many seconds; 0: the default.
func Expires(now time.Time, seconds uint32) *timestamppb.Timestamp {
	lifetime := DefaultLifetime
	if seconds > 0 {
		lifetime = time.Duration(seconds) * time.Second
	}
	return timestamppb.New(now.Add(lifetime))
}
