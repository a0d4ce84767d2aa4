package controller

import (
	"context"
	"fmt"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
)

const (
	rbac     = "rbac.authorization.k8s.io"
	rbacPath = "/apis/" + rbac + "/v1/"
)

// permission is an object by which Kubernetes lets somebody do something.
type permission struct {
	path   string
	object object
}

// object is an object of the API, as JSON has it.
type object = map[string]any

// permissions are what operators of the cluster and the API server itself may do in Kubernetes. Whoever may everything there can change them: what exists is left as it is.
func permissions() []permission {
	return []permission{
		binding("reeve:owner", "cluster-admin", "Group", pki.OwnerGroup),
		// An operator of the cluster changes what nodes run, and does not say who may do what.
		binding("reeve:operator-namespaces", "admin", "Group", pki.OperatorGroup),
		roleOf("reeve:operator",
			rule([]string{""}, []string{"namespaces"}, "get", "list", "watch", "create", "update", "patch", "delete"),
			rule([]string{""}, []string{"nodes"}, "get", "list", "watch", "update", "patch"),
			rule([]string{""}, []string{"persistentvolumes"}, "get", "list", "watch"),
			rule([]string{"storage.k8s.io"}, []string{"storageclasses", "csinodes", "csidrivers"}, "get", "list", "watch"),
		),
		binding("reeve:operator", "reeve:operator", "Group", pki.OperatorGroup),
		binding("reeve:viewer-namespaces", "view", "Group", pki.ViewerGroup),
		roleOf("reeve:viewer",
			rule([]string{""}, []string{"namespaces", "nodes", "persistentvolumes"}, "get", "list", "watch"),
			rule([]string{"storage.k8s.io"}, []string{"storageclasses", "csinodes", "csidrivers"}, "get", "list", "watch"),
		),
		binding("reeve:viewer", "reeve:viewer", "Group", pki.ViewerGroup),
		binding("reeve:kube-apiserver-to-kubelets", "system:kubelet-api-admin", "User", "reeve:kube-apiserver"),
	}
}

func rule(groups, resources []string, verbs ...string) map[string]any {
	return map[string]any{"apiGroups": groups, "resources": resources, "verbs": verbs}
}

func roleOf(name string, rules ...map[string]any) permission {
	return permission{rbacPath + "clusterroles", map[string]any{
		"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": rules,
	}}
}

func binding(name, role, kind, subject string) permission {
	return permission{rbacPath + "clusterrolebindings", map[string]any{
		"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": role},
		"subjects": []map[string]any{{"apiGroup": rbac, "kind": kind, "name": subject}},
	}}
}

// permit makes the permissions that are not there.
func permit(ctx context.Context, api *client, port int) error {
	for _, each := range permissions() {
		if err := api.create(ctx, port, each.path, each.object); err != nil {
			return fmt.Errorf("make %v: %w", each.object["metadata"], err)
		}
	}
	return nil
}
