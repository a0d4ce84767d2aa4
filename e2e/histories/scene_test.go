package histories_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/history"
	"github.com/reeveproject/reeve/e2e/internal/partition"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// patience is how long anything may take that is waited for: a loaded machine is no fault.
const patience = time.Minute

// scene is a cluster of three nodes, the ways to it, and who watches it, for all runs of a test.
type scene struct {
	cluster *devcluster.Cluster
	nodes   []*node
	// curators are the ways to one curator each, in the order of the nodes; anyCurator is the one of who fails over.
	curators   []*access
	anyCurator *access
	watchers   []*watcher
	// network is nil if the nodes have no network namespaces.
	network  *partition.Network
	others   map[string][]*clusterv1.RoleAssignment
	modelled map[string]*clusterv1.RoleAssignment
	// pending are the writes of earlier runs that may still have their effect.
	pending []history.Call
}

// manyRuns is how many runs use up what crashes a role may have.
const manyRuns = 10

// newScene makes the cluster for so many runs, by `reeve dev up` with further arguments, and begins to watch it.
func newScene(t *testing.T, c *devcluster.Cluster, runs int, arguments ...string) *scene {
	t.Helper()
	c.MustReeve(t, append([]string{"dev", "up", "--nodes", "3", "--detach"}, arguments...)...)
	if runs > manyRuns {
		// What is killed here is no fault of the roles: they are not to be given up for it.
		c.Down(t)
		for number := 1; number <= 3; number++ {
			allowCrashes(t, filepath.Join(c.NodeDirectory(number), "reeved.yaml"))
		}
		c.MustReeve(t, "dev", "up", "--detach")
	}
	s := &scene{cluster: c, others: make(map[string][]*clusterv1.RoleAssignment), modelled: make(map[string]*clusterv1.RoleAssignment)}
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		for _, a := range append(slices.Clone(s.curators), s.anyCurator) {
			if a != nil {
				_ = a.conn.Close()
			}
		}
		working.Wait()
	})
	owner := devcluster.ReadKey(t, c.Path("owner.key"))
	var addresses []string
	for number := 1; number <= 3; number++ {
		node := newNode(ctx, t, c, number, &working)
		s.nodes = append(s.nodes, node)
		status := node.await(t, "serves the cluster API", serves)
		node.id = status.GetNodeId()
		addresses = append(addresses, address(status))
		curator := newAccess(t, fmt.Sprintf("curator %d", number), status.GetCluster(), owner, address(status))
		curator.follow(ctx, &working, node)
		s.curators = append(s.curators, curator)
	}
	status, _ := s.nodes[0].status.Get()
	s.anyCurator = newAccess(t, "any curator", status.GetCluster(), owner, addresses...)
	s.anyCurator.follow(ctx, &working, s.nodes...)
	s.settle(t)
	for _, node := range s.records(t) {
		id := node.GetRecord().GetId()
		for _, role := range node.GetRecord().GetRoles() {
			if role.GetRole() == modelledRole {
				s.modelled[id] = role
			} else {
				s.others[id] = append(s.others[id], role)
			}
		}
	}
	for _, access := range append(slices.Clone(s.curators), s.anyCurator) {
		for _, node := range s.nodes {
			s.watchers = append(s.watchers, watch(ctx, access, node.id, &working))
		}
	}
	return s
}

// allowCrashes gives the roles of a node a crash budget that the faults do not use up.
func allowCrashes(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	parameters := new(nodev1.Parameters)
	if err := protojson.Unmarshal(document, parameters); err != nil {
		t.Fatal(err)
	}
	parameters.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: new(uint32(1000)), Window: durationpb.New(time.Second)}}
	if document, err = protojson.Marshal(parameters); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, document, 0o644); err != nil {
		t.Fatal(err)
	}
}

// settle waits until every node votes and every curator answers.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	for i, node := range s.nodes {
		node.await(t, "serves the cluster API", serves)
		s.answers(t, s.curators[i])
	}
}

// answers waits until a curator answers from the store.
func (s *scene) answers(t *testing.T, curator *access) {
	t.Helper()
	eventually.True(t, patience, curator.name+" answers", func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, err := curator.api.GetClusterInfo(ctx, &clusterv1.GetClusterInfoRequest{})
		return err == nil, fmt.Sprint(err)
	})
}

// records returns the nodes as the cluster has them.
func (s *scene) records(t *testing.T) []*clusterv1.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := s.anyCurator.api.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetNodes()
}

// leader is the node whose member of the store leads it, as a majority says.
func (s *scene) leader(t *testing.T) *node {
	t.Helper()
	var leader *node
	eventually.True(t, patience, "the store has a leader", func() (bool, string) {
		votes := make(map[string]int)
		for _, node := range s.nodes {
			status, _ := node.status.Get()
			votes[status.GetStore().GetLeaderId()]++
		}
		for _, node := range s.nodes {
			status, _ := node.status.Get()
			if id := status.GetStore().GetMemberId(); id != "" && votes[id] > len(s.nodes)/2 {
				leader = node
				return true, ""
			}
		}
		return false, fmt.Sprint(votes)
	})
	return leader
}

// followers are the nodes but one.
func (s *scene) followers(leader *node) []*node {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(node *node) bool { return node == leader })
}

// killCurator kills the curator of a node, and returns when the next one answers.
func (s *scene) killCurator(t *testing.T, node *node) {
	t.Helper()
	status, _ := node.status.Get()
	killed := instance(status, "curator")
	s.cluster.Kill(t, int(killed.GetPid()))
	node.await(t, "has another curator", func(status *nodev1.Status) bool {
		return serves(status) && instance(status, "curator").GetInstanceId() != killed.GetInstanceId()
	})
	s.answers(t, s.curators[slices.Index(s.nodes, node)])
}

// killMember kills the consensus role of a node. replaced returns when the node says that another one serves: it may take a while to see that the one before has ended.
func (s *scene) killMember(t *testing.T, node *node) (replaced func()) {
	t.Helper()
	status, _ := node.status.Get()
	killed := instance(status, "consensus")
	s.cluster.Kill(t, int(killed.GetPid()))
	return func() {
		node.await(t, "has another consensus role", func(status *nodev1.Status) bool {
			return serves(status) && instance(status, "consensus").GetInstanceId() != killed.GetInstanceId()
		})
	}
}

// killNode kills every process of a node, as if its machine had lost its power.
func (s *scene) killNode(t *testing.T, node *node) {
	t.Helper()
	for killed := true; killed; {
		killed = false
		for _, process := range s.cluster.Processes(t) {
			if slices.Contains(process.Arguments, filepath.Join(node.directory, "reeved.yaml")) || strings.HasPrefix(process.Variable(devcluster.Instance), node.id+"/") {
				s.cluster.KillProcess(t, process)
				killed = true
			}
		}
	}
}

// followsRecords waits until every core has its node run what its record says: also the cores' watches have not lost the newest.
func (s *scene) followsRecords(t *testing.T) {
	t.Helper()
	eventually.True(t, patience, "every node runs what its record says", func() (bool, string) {
		for _, record := range s.records(t) {
			node := s.nodes[slices.IndexFunc(s.nodes, func(node *node) bool { return node.id == record.GetRecord().GetId() })]
			status, _ := node.status.Get()
			role, wanted := instance(status, modelledRole), stateOf(record.GetRecord()).Role
			if ready := role.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY; ready != wanted || (role != nil) != wanted {
				return false, fmt.Sprintf("node %d is to have %s: %t; %s", node.number, modelledRole, wanted, show(status))
			}
		}
		return true, ""
	})
}
