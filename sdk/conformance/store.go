package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Store is a consensus store for the roles that are tested. Package store of this module has one.
type Store interface {
	// User has the store know a ConsensusUser, and returns what the suite needs of it.
	User(ctx context.Context, name string) (StoreUser, error)
	// Close ends the store and removes what it has made.
	Close() error
}

// StoreUser is a ConsensusUser of a Store: what a role has of it, and what the role has made of that.
type StoreUser interface {
	// Socket is the path of the Unix socket on which etcd's API is served to this user.
	Socket() string
	// Usage is what the user has asked for since Clear.
	Usage() StoreUsage
	// Leases are the times for which the user's leases would live on.
	Leases(ctx context.Context) ([]time.Duration, error)
	// Full takes all room from the store, or gives it back.
	Full(ctx context.Context, full bool) error
	// Clear removes the user's keys and leases, and counts anew.
	Clear(ctx context.Context) error
}

// StoreUsage is what a user has asked of a store.
type StoreUsage struct {
	// Requests is how many requests there were.
	Requests int
	// Denied are those that etcd refused as not the user's; some of them, if they are many.
	Denied []string
	// NoRoom is how many were refused since there was no room.
	NoRoom int
}

// consensusCapability is what a role requires that wants the store to be on its node.
const consensusCapability = "reeve.consensus.v1"

// usesStore reports whether a role has a ConsensusUser.
func usesStore(of *rolev1.RoleManifest) bool { return of.GetConsensusUser() != "" }

// needsOnlyStore reports whether a role has a ConsensusUser and waits for nothing else before it is Ready.
func needsOnlyStore(of *rolev1.RoleManifest) bool {
	return usesStore(of) && standsAlone(of)
}

// standsAlone reports whether a role needs nobody but its host, and its store if it has one: the suite runs one role at a time, and calls none of its capabilities.
func standsAlone(of *rolev1.RoleManifest) bool {
	return len(of.GetProvides()) == 0 && !slices.ContainsFunc(of.GetRequires(), func(name string) bool { return name != consensusCapability })
}

// openStore opens the store, if there is one, to a role. The host is the role's.
func (s *subject) openStore(ctx context.Context, host *roletest.Host, of *rolev1.RoleManifest) error {
	if s.config.Store == nil || !usesStore(of) || s.users[of.GetName()] != nil {
		return nil
	}
	if s.store == nil {
		opened, err := s.config.Store(ctx)
		if err != nil {
			return err
		}
		s.store = opened
	}
	user, err := s.store.User(ctx, of.GetConsensusUser())
	if err != nil {
		return fmt.Errorf("the suite's consensus store has no user %s: %w", of.GetConsensusUser(), err)
	}
	s.users[of.GetName()] = user
	if of.GetStartsFromCache() || of.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE {
		host.KeepStore()
	}
	host.OpenStore(user.Socket(), of.GetConsensusUser())
	return nil
}

// clearStore removes what the roles have stored, so that no check finds what another one has left.
func (s *subject) clearStore(ctx context.Context) error {
	for _, user := range s.users {
		if err := user.Clear(ctx); err != nil {
			return fmt.Errorf("the suite's consensus store: %w", err)
		}
	}
	return nil
}
