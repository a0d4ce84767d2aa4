package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

type fenceKey struct{}

// Within returns a context in which Root's calls are those of a fence.
func Within(ctx context.Context, fence string) context.Context {
	return context.WithValue(ctx, fenceKey{}, fence)
}

// Fence makes a fence: a call within it is refused as soon as Fence was called again, by whichever member. etcd cannot make a change of its users conditional on
// a key; but it looks whether the one who asks for it is there when it carries the change out, in the order of the log. So who keeps the users acts as a user of its own, with root's
// permissions, and deletes that of its predecessor: what that one still has under way, from what it had read before, has no effect.
func (s *Store) Fence(ctx context.Context) (string, error) {
	name := identity.StoreFence + strings.ToLower(rand.Text())
	root := Root(ctx)
	if err := checkpoint.Around(steps.MakeFence, func() error {
		return unless(nil)(s.client.UserAddWithOptions(root, name, "", &clientv3.UserAddOptions{NoPassword: true}))
	}); err != nil {
		return "", fmt.Errorf("make the user as which the users are kept: %w", err)
	}
	if err := checkpoint.Around(steps.GrantFence, func() error { return unless(nil)(s.client.UserGrantRole(root, name, RootUser)) }); err != nil {
		return "", fmt.Errorf("give the user as which the users are kept its permissions: %w", err)
	}
	users, err := s.etcd.Server.AuthStore().UserList(&pb.AuthUserListRequest{})
	if err != nil {
		return "", fmt.Errorf("list etcd's users: %w", err)
	}
	for _, former := range users.Users {
		if !identity.IsStoreFence(former) || former == name {
			continue
		}
		err := checkpoint.Around(steps.DeleteFence, func() error { return unless(nil)(s.client.UserDelete(Root(Within(ctx, name)), former)) })
		if err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
			return "", fmt.Errorf("delete the user as which the users were kept before: %w", err)
		}
	}
	if !s.Holds(name) {
		return "", ErrFenced
	}
	return name, nil
}

// ErrFenced says that somebody else keeps the users by now.
var ErrFenced = errors.New("another member keeps the users of the store by now")

// Holds reports whether no other fence has taken the place of one.
func (s *Store) Holds(fence string) bool {
	_, there := s.rolesOf(fence)
	return there
}
