package door_test

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func authRows(root api) []row {
	rows := []row{
		{"Auth/AuthStatus", "", denied, nil, func(ctx context.Context, a api) error { return drop(a.AuthStatus(ctx, &pb.AuthStatusRequest{})) }},
		{"Auth/Authenticate", "as root, without password", denied, status.Error(codes.Unknown, auth.ErrNoPasswordUser.Error()), func(ctx context.Context, a api) error {
			return drop(a.Authenticate(ctx, &pb.AuthenticateRequest{Name: "root"}))
		}},
		{"Auth/UserGet", "itself", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.UserGet(ctx, &pb.AuthUserGetRequest{Name: "ant"}))
		}},
		{"Auth/RoleGet", "its own", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "ant"}))
		}},
	}
	add := func(method, name string, call func(context.Context, api) error) {
		rows = append(rows, row{method, name, denied, nil, call})
	}
	add("Auth/UserGet", "another", func(ctx context.Context, a api) error {
		return drop(a.UserGet(ctx, &pb.AuthUserGetRequest{Name: "bee"}))
	})
	add("Auth/RoleGet", "another's", func(ctx context.Context, a api) error {
		return drop(a.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "bee"}))
	})
	add("Auth/UserList", "", func(ctx context.Context, a api) error { return drop(a.UserList(ctx, &pb.AuthUserListRequest{})) })
	add("Auth/RoleList", "", func(ctx context.Context, a api) error { return drop(a.RoleList(ctx, &pb.AuthRoleListRequest{})) })
	// In an order in which each works for root.
	add("Auth/RoleAdd", "", func(ctx context.Context, a api) error {
		return drop(a.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "new"}))
	})
	everything := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte{0}, RangeEnd: []byte{0}}
	add("Auth/RoleGrantPermission", "everything to a new role", func(ctx context.Context, a api) error {
		return drop(a.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "new", Perm: everything}))
	})
	add("Auth/RoleGrantPermission", "a foreign prefix to itself", func(ctx context.Context, a api) error {
		mine := &authpb.Permission{PermType: authpb.Permission_READ, Key: []byte(foreignPrefix), RangeEnd: []byte(foreignEnd)}
		if err := drop(a.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "ant", Perm: mine})); err != nil {
			return err
		}
		return drop(root.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: "ant", Key: mine.Key, RangeEnd: mine.RangeEnd}))
	})
	add("Auth/RoleRevokePermission", "another's", func(ctx context.Context, a api) error {
		return drop(a.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: "new", Key: everything.Key, RangeEnd: everything.RangeEnd}))
	})
	add("Auth/UserAdd", "", func(ctx context.Context, a api) error {
		return drop(a.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "new", Options: &authpb.UserAddOptions{NoPassword: true}}))
	})
	add("Auth/UserChangePassword", "root's", func(ctx context.Context, a api) error {
		return drop(a.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: "root", Password: "x"}))
	})
	add("Auth/UserChangePassword", "its own", func(ctx context.Context, a api) error {
		return drop(a.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: "ant", Password: "x"}))
	})
	add("Auth/UserGrantRole", "root to a new user", func(ctx context.Context, a api) error {
		return drop(a.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "new", Role: "root"}))
	})
	add("Auth/UserGrantRole", "another's role to itself", func(ctx context.Context, a api) error {
		if err := drop(a.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "ant", Role: "bee"})); err != nil {
			return err
		}
		return drop(root.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "ant", Role: "bee"}))
	})
	add("Auth/UserRevokeRole", "another's", func(ctx context.Context, a api) error {
		return drop(a.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "new", Role: "root"}))
	})
	add("Auth/UserDelete", "another", func(ctx context.Context, a api) error {
		return drop(a.UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "new"}))
	})
	add("Auth/RoleDelete", "another's", func(ctx context.Context, a api) error {
		return drop(a.RoleDelete(ctx, &pb.AuthRoleDeleteRequest{Role: "new"}))
	})
	add("Auth/AuthEnable", "", func(ctx context.Context, a api) error { return drop(a.AuthEnable(ctx, &pb.AuthEnableRequest{})) })
	add("Auth/AuthDisable", "", func(ctx context.Context, a api) error {
		if err := drop(a.AuthDisable(ctx, &pb.AuthDisableRequest{})); err != nil {
			return err
		}
		return drop(root.AuthEnable(ctx, &pb.AuthEnableRequest{}))
	})
	return rows
}
