package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// patience only turns a hang into a failure.
const patience = 2 * time.Minute

// attemptTimeout is how long an attempt may take: longer than the roles themselves allow for one.
const attemptTimeout = 6 * time.Minute

// scene is a node with a victim on it, and with roles that attack.
type scene struct {
	cluster *devcluster.Cluster
	// directory is the node's; empty: that of the cluster's first one.
	directory string
	user      string
	// granted is the file that the role grantee may replace, in a directory of the core's user; disk is where everything is.
	granted, disk string
	node          string
	status        devcluster.Status
	core, victim  procfs.Process
	// known is what the attackers are told: victim.state of the victim.
	known   map[string]string
	missing map[string]bool
	files   map[string]mark
	// mounts are the machine's, and leaving the roles that are taken away.
	mounts  map[string]bool
	leaving map[string]*leaving
	// plugin is the executable of the hostile plugin.
	plugin string
	// ctx ends some time before go test would end the test, so that the test still ends what it has started.
	ctx    context.Context
	orders atomic.Int64
	// listener is a service of the machine on a port that no role is granted; bait is an abstract socket.
	listener, bait net.Listener
}

// set makes a scene.
func set(t *testing.T, user *devcluster.User) *scene {
	t.Helper()
	name := "root"
	if user != nil || !isRoot() {
		name = "ordinary user"
	}
	s := &scene{user: name, disk: newDisk(t), ctx: beforeDeadline(t)}
	// What is mounted before the cluster is made stays until it has ended.
	memory := newMemory(t, filepath.Join(suite.base, "r"+filepath.Base(s.disk)))
	s.cluster = devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: s.disk, User: user})
	s.granted = filepath.Join(s.disk, "granted", "file")
	if err := os.Mkdir(filepath.Dir(s.granted), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.granted, filepath.Join(filepath.Dir(s.granted), "other"), filepath.Join(s.disk, "other")} {
		if err := os.WriteFile(path, []byte("granted"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if user != nil {
		for _, path := range []string{filepath.Dir(s.granted), s.granted} {
			if err := os.Chown(path, user.UID, user.GID); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.cluster.WriteParameters(t, func(p *nodev1.Parameters) {
		// Attacks are expected to fail their roles.
		many := uint32(1000)
		p.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &many, Window: durationpb.New(time.Hour)}}
		// But those that fail whenever they are started would only keep the machine busy.
		few := uint32(3)
		for _, row := range lieRows {
			p.Supervision.Roles = append(p.Supervision.Roles, &nodev1.RoleSupervision{Role: row.Role, CrashBudget: &nodev1.CrashBudget{Failures: &few}})
		}
		p.Directories.Run = memory
		if user != nil {
			p.Directories.Run = filepath.Join(s.cluster.Home, "r")
		}
	})
	boxed := filepath.Join(s.cluster.Directory, "data", "roles", "grantee", "box", "file")
	var err error
	s.plugin, err = roleplugin.Build(t.Context(), suite.programs.Workspace, suite.base, "hostile", map[string]string{"granted": s.granted, "boxed": boxed})
	if err != nil {
		t.Fatal(err)
	}
	s.node = s.cluster.Up(t).Node.ID
	arguments := []string{"plugin", "add", s.plugin}
	if strings.Contains(s.cluster.StartAlone(t, "plugin", "add", "--help").Wait(t, patience).Stdout, "--approve") {
		arguments = append(arguments, "--approve")
	}
	s.cluster.MustReeve(t, arguments...)
	return s
}

// beforeDeadline is a context that ends while there is still time to stop a node with all its roles.
func beforeDeadline(t *testing.T) context.Context {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-min(2*time.Minute, time.Until(deadline)/3)))
	t.Cleanup(cancel)
	return ctx
}

// start starts the roles of all rows, the liars last, and learns what attackers are assumed to know.
func (s *scene) start(t *testing.T) {
	t.Helper()
	var orderly, liars []string
	for _, row := range append([]Row{{Role: "victim"}}, Rows()...) {
		if row.Role == row.ID {
			liars = append(liars, row.Role)
		} else if row.Role != "" && !slices.Contains(orderly, row.Role) {
			orderly = append(orderly, row.Role)
		}
	}
	s.add(t, orderly)
	s.status = s.cluster.AwaitUp(t, patience, append(slices.Clone(orderly), devcluster.DefaultRoles...)...)
	s.core = s.cluster.Core(t)
	var err error
	if s.victim, err = procfs.Read(s.status.Role("victim").PID); err != nil {
		t.Fatal(err)
	}
	s.learn(t)
	s.bystanders(t)
	s.add(t, liars)
}

// add gives roles to the node, a few at a time.
func (s *scene) add(t *testing.T, roles []string) {
	t.Helper()
	for some := range slices.Chunk(roles, 4) {
		var running []*devcluster.Running
		for _, role := range some {
			running = append(running, s.cluster.Start(t, "node", "role", "add", s.node, role, "--wait=none"))
		}
		for _, command := range running {
			if result := command.Wait(t, patience); result.Code != 0 {
				t.Fatal(result)
			}
		}
	}
}

// learn asks the victim for what it has, and notes what must stay as it is.
func (s *scene) learn(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, err := s.order(t, "victim", "victim.state", nil, patience)
		if err == nil && got.Values["lease"] != "0" {
			s.known = got.Values
			break
		}
		if time.Now().After(deadline) || s.ctx.Err() != nil {
			t.Fatalf("the victim is not ready: %v %+v", err, got)
		}
	}
	s.missing = missingOf(t, s)
	if s.mounts == nil {
		s.mounts = mountsOf(t)
	}
	s.files = make(map[string]mark)
	for _, pattern := range []string{"system/configuration.json", "owner.key", "reeved.yaml", "data/plugins/*", "data/roles/victim/secret"} {
		paths, _ := filepath.Glob(s.cluster.Path(pattern))
		for _, path := range append(paths, "/etc/passwd", filepath.Join(s.disk, "other")) {
			if m, err := markOf(path); err == nil {
				s.files[path] = m
			}
		}
	}
}

// bystanders are a service of the machine on a port, and one on an abstract socket: no role is to reach them.
func (s *scene) bystanders(t *testing.T) {
	t.Helper()
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if s.bait, err = net.Listen("unix", fmt.Sprintf("@reeve-hostile-%d-%s", os.Getpid(), filepath.Base(s.disk))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.listener.Close()
		_ = s.bait.Close()
	})
}

// missingOf is what the node says that it cannot enforce.
func missingOf(t *testing.T, s *scene) map[string]bool {
	t.Helper()
	var document struct {
		Node struct {
			Isolation string
			Missing   []struct{ Name string }
		}
	}
	text := s.cluster.MustReeve(t, "status", "-o", "json").Stdout
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for _, part := range document.Node.Missing {
		missing[part.Name] = true
	}
	if document.Node.Isolation == "shared-uid" {
		missing[ownUID] = true
	}
	return missing
}

// pidOf is the process of a role as the last status had it.
func (s *scene) pidOf(role string) int { return s.status.Role(role).PID }

// refresh looks at the node again.
func (s *scene) refresh(t *testing.T) devcluster.Status {
	t.Helper()
	s.status = s.cluster.Status(t)
	return s.status
}
