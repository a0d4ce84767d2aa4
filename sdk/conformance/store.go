package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Store is a consensus store for the tested roles. Package store of this module has one.
type Store interface {
	// User creates a ConsensusUser in the store.
	User(ctx context.Context, name string) (StoreUser, error)
	// Close ends the store and removes its files.
	Close() error
}

// StoreUser is a ConsensusUser of a Store, with what the role has done as this user.
type StoreUser interface {
	// Socket is the path of the Unix socket that serves etcd's API to this user.
	Socket() string
	// Usage is what the user has requested since Clear.
	Usage() StoreUsage
	// Leases returns the remaining lifetimes of the user's leases.
	Leases(ctx context.Context) ([]time.Duration, error)
	// Full makes the store full, or no longer full.
	Full(ctx context.Context, full bool) error
	// Clear removes the user's keys and leases, and resets Usage.
	Clear(ctx context.Context) error
}

// StoreUsage is what a user has requested.
type StoreUsage struct {
	// Requests is the number of requests.
	Requests int
	// Denied are requests that etcd refused because they were outside the user's prefix; only some of them if there are many.
	Denied []string
	// NoRoom is the number of requests that were refused because the store was full.
	NoRoom int
}

// consensusCapability is what a role requires that wants the store on its node.
const consensusCapability = "reeve.consensus.v1"

// usesStore reports whether a role has a ConsensusUser.
func usesStore(of *rolev1.RoleManifest) bool { return of.GetConsensusUser() != "" }

// needsOnlyStore reports whether a role has a ConsensusUser and waits for nothing else before it is Ready.
func needsOnlyStore(of *rolev1.RoleManifest) bool {
	return usesStore(of) && standsAlone(of)
}

// standsAlone reports whether a role needs only its host, and its store if it has one. The suite runs one role at a time, and calls none of its
// capabilities.
func standsAlone(of *rolev1.RoleManifest) bool {
	return len(of.GetProvides()) == 0 && !slices.ContainsFunc(of.GetRequires(), func(name string) bool { return name != consensusCapability })
}

// openStore opens the store, if there is one, for a role on its host.
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

// clearStore removes what the roles have stored, so that checks do not affect each other.
func (s *subject) clearStore(ctx context.Context) error {
	for _, user := range s.users {
		if err := user.Clear(ctx); err != nil {
			return fmt.Errorf("the suite's consensus store: %w", err)
		}
	}
	return nil
}
