package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// Of the user u etcd knows two things: the role u, which may read and write the prefix of u, and the user u, which has that role and no
// other. Before both there is its number (numbers.go). Reading goes to the local member's tables, which costs nothing; changes go through raft.

// enableAuthorization makes root and turns authorization on. It can be run again at any point.
func (s *Store) enableAuthorization(ctx context.Context) error {
	if s.etcd.Server.AuthStore().IsAuthEnabled() {
		return nil
	}
	ctx = Root(ctx)
	for _, step := range []struct {
		name checkpoint.Step
		take func() error
	}{
		{steps.MakeRootRole, func() error { return unless(rpctypes.ErrRoleAlreadyExist)(s.client.RoleAdd(ctx, RootUser)) }},
		{steps.MakeRoot, func() error {
			return unless(rpctypes.ErrUserAlreadyExist)(s.client.UserAddWithOptions(ctx, RootUser, "", &clientv3.UserAddOptions{NoPassword: true}))
		}},
		{steps.GrantRoot, func() error { return unless(nil)(s.client.UserGrantRole(ctx, RootUser, RootUser)) }},
		{steps.EnableAuthorization, func() error { return unless(nil)(s.client.AuthEnable(ctx)) }},
	} {
		if err := checkpoint.Around(step.name, step.take); err != nil {
			return err
		}
	}
	return nil
}

// unless drops the error that says that a step had been done before.
func unless(done error) func(any, error) error {
	return func(_ any, err error) error {
		if done != nil && errors.Is(err, done) {
			return nil
		}
		return err
	}
}

// EnsureUser makes a user and confines it to its prefix, whatever part of that is done already.
func (s *Store) EnsureUser(ctx context.Context, user string) error {
	if !identity.ValidConsensusUser(user) {
		return fmt.Errorf("%q cannot be a ConsensusUser", user)
	}
	defer s.refreshUsers()
	root := Root(ctx)
	// First, so that every member that knows the user knows its number. A store without any room cannot take one: the user gets it later, and has no leases
	// until then.
	if err := s.ensureNumber(root, user); err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("give the user %s a number: %w", user, err)
	}
	if err := s.ensureRole(root, user); err != nil {
		return fmt.Errorf("make etcd's role %s: %w", user, err)
	}
	roles, exists := s.rolesOf(user)
	if !exists {
		err := checkpoint.Around(steps.MakeUser, func() error {
			_, err := s.client.UserAddWithOptions(root, user, "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
			return fmt.Errorf("make etcd's user %s: %w", user, err)
		}
	}
	for _, role := range roles {
		if role == user {
			continue
		}
		if _, err := s.client.UserRevokeRole(root, user, role); err != nil && !errors.Is(err, rpctypes.ErrRoleNotGranted) {
			return fmt.Errorf("take role %s from etcd's user %s: %w", role, user, err)
		}
	}
	if !slices.Contains(roles, user) {
		err := checkpoint.Around(steps.ConfineUser, func() error {
			_, err := s.client.UserGrantRole(root, user, user)
			return err
		})
		if err != nil {
			return fmt.Errorf("confine etcd's user %s: %w", user, err)
		}
	}
	return nil
}

func (s *Store) ensureRole(root context.Context, user string) error {
	permissions, exists := s.permissionsOf(user)
	if !exists {
		err := checkpoint.Around(steps.MakeRole, func() error {
			_, err := s.client.RoleAdd(root, user)
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
			return err
		}
	}
	granted := false
	for _, permission := range permissions {
		if isPrefix(permission, user) {
			granted = true
			continue
		}
		_, err := s.client.RoleRevokePermission(root, user, string(permission.Key), string(permission.RangeEnd))
		if err != nil && !errors.Is(err, rpctypes.ErrPermissionNotGranted) {
			return err
		}
	}
	if granted {
		return nil
	}
	prefix := consensusv1.UserPrefix(user)
	return checkpoint.Around(steps.ConfineRole, func() error {
		_, err := s.client.RoleGrantPermission(root, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
		return err
	})
}

// RemoveUser takes a user's permissions and then what is left of it. Its keys stay, and its number: see Wipe. A user that is not there is no error.
func (s *Store) RemoveUser(ctx context.Context, user string) error {
	if !identity.ValidConsensusUser(user) || user == s.plan.ClusterUser {
		return fmt.Errorf("the user %q is not to be removed", user)
	}
	defer s.refreshUsers()
	root := Root(ctx)
	// Without its user a connection is refused everything at once, so this comes first.
	err := checkpoint.Around(steps.RemoveUser, func() error {
		_, err := s.client.UserDelete(root, user)
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return fmt.Errorf("remove etcd's user %s: %w", user, err)
	}
	// etcd says that there is no such user, too, when it is the fence that is not there any more. Then this step says it again, and it fails.
	err = checkpoint.Around(steps.RemoveRole, func() error {
		_, err := s.client.RoleDelete(root, user)
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return fmt.Errorf("remove etcd's role %s: %w", user, err)
	}
	return nil
}

// Accounts returns the names of all users and roles, but root's and those of fences, as the local member knows them: what EnsureUser or RemoveUser left unfinished is
// among them. Sorted.
//
// The roles are read from the database. etcd's own list of them takes the lock of its writes as if it were called by a request that is applied, and has the database
// written: with the index of the request that is being applied by then, and without what it writes. A member that is killed before the next write lacks that one for good.
func (s *Store) Accounts() ([]string, error) {
	users, err := s.etcd.Server.AuthStore().UserList(&pb.AuthUserListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list etcd's users: %w", err)
	}
	names := users.Users
	tx := s.etcd.Server.Backend().ReadTx()
	tx.RLock()
	err = tx.UnsafeForEach(schema.AuthRoles, func(name, _ []byte) error {
		names = append(names, string(name))
		return nil
	})
	tx.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("list etcd's roles: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == RootUser || identity.IsStoreFence(name) })
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (s *Store) rolesOf(user string) ([]string, bool) {
	answer, err := s.etcd.Server.AuthStore().UserGet(&pb.AuthUserGetRequest{Name: user})
	if err != nil { // it can only be that there is none
		return nil, false
	}
	return answer.Roles, true
}

func (s *Store) permissionsOf(role string) ([]*authpb.Permission, bool) {
	answer, err := s.etcd.Server.AuthStore().RoleGet(&pb.AuthRoleGetRequest{Role: role})
	if err != nil {
		return nil, false
	}
	return answer.Perm, true
}

func isPrefix(permission *authpb.Permission, user string) bool {
	prefix := consensusv1.UserPrefix(user)
	return permission.PermType == authpb.Permission_READWRITE && string(permission.Key) == prefix &&
		string(permission.RangeEnd) == clientv3.GetPrefixRangeEnd(prefix)
}

// confined reports whether a user is there and has exactly what is its own.
func (s *Store) confined(user string) bool {
	roles, _ := s.rolesOf(user)
	permissions, _ := s.permissionsOf(user)
	return slices.Equal(roles, []string{user}) && len(permissions) == 1 && isPrefix(permissions[0], user)
}

// usersRevision is the revision of the users as the database has it. etcd's own number is ahead of the database for a moment while a user is changed: who then looked at the users
// under the new number would take the old ones for them, until somebody changes another.
func (s *Store) usersRevision() uint64 {
	tx := s.etcd.Server.Backend().ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	_, found := tx.UnsafeRange(schema.Auth, schema.AuthRevisionKeyName, nil, 0)
	if len(found) != 1 || len(found[0]) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(found[0])
}

// refreshUsers publishes the users, if etcd's authorization or their numbers have changed since it last did.
func (s *Store) refreshUsers() {
	if s.closing() {
		return // Run, which ends then, may learn of it late
	}
	s.accounts.Lock()
	defer s.accounts.Unlock()
	revision, numbered := s.usersRevision(), s.numbersRevision()
	if s.accounts.known != nil && s.accounts.revision == revision && s.accounts.numbered == numbered {
		return
	}
	names, err := s.Accounts()
	if err != nil {
		s.log.Error("cannot list the users of the store; going on with those that were known", "error", err)
		return
	}
	given, err := s.readNumbers() // after the users, each of which was given its number before
	if err != nil {
		s.log.Error("cannot read the numbers of the store's users; going on with those that were known", "error", err)
		return
	}
	before := s.Numbers()
	known := make(map[string]uint64, len(names))
	for _, name := range names {
		if !s.confined(name) {
			continue
		}
		if known[name] = s.accounts.known[name]; known[name] == 0 || given[name] != before[name] && before[name] != 0 {
			s.accounts.last++
			known[name] = s.accounts.last
		}
	}
	s.accounts.revision, s.accounts.numbered, s.accounts.known = revision, numbered, known
	s.accounts.numbers.Store(&given)
	s.status.Update(func(status Status) Status {
		status.Users = known
		return status
	})
}
