package command_test

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/internal/fakecluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// workersKey is under which a script has what its nodes serve as kubernetes-worker, by the nodes' IDs.
type workersKey struct{}

// fakeKubernetes changes what is of Kubernetes in the cluster.
func fakeKubernetes(ts *testscript.TestScript, cluster *fakecluster.Cluster, args []string) error {
	workers := ts.Value(workersKey{}).(map[string]*fakecluster.Worker)
	switch args[0] {
	case "kubernetes":
		record := plugin("kubernetes")
		record.Manifest.Roles = []*rolev1.RoleManifest{
			{Name: "kubernetes-pki", Summary: "signs", Requires: []string{"reeve.consensus.v1"}},
			{Name: "kubernetes-controller", Summary: "controls", Requires: []string{"reeve.consensus.v1", "kubernetes-pki"}},
			{Name: "kubernetes-worker", Summary: "runs pods"},
		}
		store := plugin("store")
		store.Manifest.Roles = []*rolev1.RoleManifest{{Name: "store", Summary: "keeps", Provides: []string{"reeve.consensus.v1"}}}
		cluster.AddPlugin(store)
		cluster.AddPlugin(record)
	case "stale":
		return cluster.ChangeNode(args[1], func(node *clusterv1.Node) { node.Healthy = false })
	case "worker":
		worker, instance, err := fakeWorker(cluster, args[1], args[2], args[3:])
		if err != nil {
			return err
		}
		workers[args[1]] = worker
		return cluster.RunRole(args[1], "kubernetes-worker", instance)
	case "loaded":
		if worker := workers[args[1]]; worker == nil || !worker.Has([]byte(ts.ReadFile(args[2]))) {
			return fmt.Errorf("node %s has not got %s", args[1], args[2])
		}
	case "controller":
		return cluster.RunRole(args[1], "kubernetes-controller", &clusterv1.InstanceStatus{
			State: instanceState(args[2]), Endpoints: []*rolev1.Endpoint{{Name: "kubernetes-api", Address: args[3]}},
		})
	case "pki":
		address, err := cluster.ServeRole(args[1], "kubernetes-pki", func(server *grpc.Server) {
			kubernetesv1.RegisterPKIServiceServer(server, &fakecluster.PKI{Authority: []byte("authority")})
		})
		if err != nil {
			return err
		}
		return cluster.RunRole(args[1], "kubernetes-pki", &clusterv1.InstanceStatus{
			State: instanceState("ready"), Endpoints: []*rolev1.Endpoint{{Name: "pki", Address: address}},
		})
	}
	return nil
}

// fakeWorker serves what kubernetes-worker serves on a node, and returns what the node reports of it.
func fakeWorker(cluster *fakecluster.Cluster, id, state string, options []string) (*fakecluster.Worker, *clusterv1.InstanceStatus, error) {
	worker, certified, serves := &fakecluster.Worker{Cluster: cluster}, id, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "unserved":
			serves = false
		case "as":
			certified = value
		case "lacks":
			what, remedy, _ := strings.Cut(value, ":")
			worker.Missing = append(worker.Missing, &kubernetesv1.Missing{What: what, Remedy: remedy})
		case "image":
			worker.Images = append(worker.Images, value)
		case "refuses":
			worker.Refuses = status.Error(codes.FailedPrecondition, value)
		default:
			return nil, nil, fmt.Errorf("a worker has no option %s", option)
		}
	}
	name, reason, _ := strings.Cut(state, ":")
	instance := &clusterv1.InstanceStatus{State: instanceState(name), Reason: reason, Pid: 4711}
	if !serves {
		return worker, instance, nil
	}
	address, err := cluster.ServeRole(certified, "kubernetes-worker", func(server *grpc.Server) { kubernetesv1.RegisterWorkerServiceServer(server, worker) })
	instance.Endpoints = []*rolev1.Endpoint{{Name: "worker", Address: address}}
	return worker, instance, err
}
