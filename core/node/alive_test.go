package node

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// built is the test plugin, made by the first test that needs it in a directory that TestMain removes.
var built struct {
	once       sync.Once
	dir        string
	executable *plugintest.Executable
	err        error
}

func TestMain(m *testing.M) {
	volume.Patience = time.Minute // for the other tests of a busy machine
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// alive is a node of a test, which runs.
type alive struct {
	t          *testing.T
	parameters *nodev1.Parameters
	recovery   *age.X25519Identity
	// wrap puts something between the node and its volume; nil: nothing.
	wrap func(storageRoom) storageRoom
	// beside is a room beside the others, where there is something between; nil: there is none.
	beside func(context.Context) error
	// probeEvery is the node's, where there is something between.
	probeEvery time.Duration
	// file and again are those of Config.
	file  string
	again bool

	stop  context.CancelCauseFunc
	ended chan error
}

// newAlive has the parameters of a node of its own, with the volume, and the role "api", which writes a file and a log, and has a child.
func newAlive(t *testing.T, kind *nodev1.Volume) *alive {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("/tmp", "rv"); built.err == nil {
			if built.err = os.Chmod(built.dir, 0o711); built.err == nil {
				built.executable, built.err = plugintest.Build(built.dir)
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	dir := plugintest.Dir(t)
	executable := filepath.Join(dir, "band")
	variant := plugintest.Variant{Name: "band", Roles: []plugintest.Role{
		{Name: "store", Provides: []string{roles.CapabilityConsensus}}, {Name: "api", Provides: []string{roles.CapabilityCluster}},
	}}
	built.executable.Write(t, executable, variant)
	owner, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	recovery, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	configuration := plugintest.Configuration{Do: "ready", Write: "hello", Log: []string{"here I am"}, Children: []string{"session"}}
	return &alive{t: t, recovery: recovery, parameters: &nodev1.Parameters{
		Directories: &nodev1.Directories{System: filepath.Join(dir, "system"), Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")},
		Volume:      kind, Plugins: []*nodev1.BuiltinPlugin{{Path: executable}},
		Cluster: &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
			OwnerPublicKey: owner, RecoveryRecipient: recovery.Recipient().String(),
			Roles: []*nodev1.BootstrapRole{{Role: "store", Configuration: plugintest.Configuration{Do: "ready"}.String()}, {Role: "api", Configuration: configuration.String()}},
		}},
	}}
}

// start runs the node until the test ends, or stop is called.
func (a *alive) start() {
	a.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended, over := make(chan error, 1), make(chan struct{})
	a.ended = ended
	log := hclog.New(&hclog.LoggerOptions{Output: a.t.Output(), Level: hclog.Info})
	go func() {
		defer close(over)
		if a.wrap == nil {
			ended <- Run(ctx, Config{Log: log, Parameters: a.parameters, ParametersFile: a.file, Again: a.again, Version: "1.2.3"})
			return
		}
		held, err := storage.Open(storage.NewLayout(a.parameters.GetDirectories()))
		if err != nil {
			ended <- err
			return
		}
		room, err := unseal.New(unseal.Config{Log: log, Storage: held, Parameters: a.parameters})
		if err == nil {
			n := &node{config: Config{Log: log, Parameters: a.parameters}, log: log, start: time.Now(), storage: held, room: a.wrap(room), beside: a.beside, probeEvery: a.probeEvery, events: new(events.Relay)}
			err = n.run(ctx)
		}
		ended <- errors.Join(err, held.Close())
	}()
	a.stop = cancel
	// It writes its log into the test's, and its files below a directory that is removed then.
	a.t.Cleanup(func() {
		cancel(nil)
		<-over
	})
}

// end stops the node and returns what it ended with.
func (a *alive) end() error {
	a.stop(nil)
	return <-a.ended
}

func (a *alive) layout() storage.Layout {
	layout, err := unseal.LayoutOf(a.parameters)
	if err != nil {
		a.t.Fatal(err)
	}
	return layout
}

func (a *alive) context() context.Context {
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Minute)
	a.t.Cleanup(cancel)
	return ctx
}

func (a *alive) client() nodev1.NodeServiceClient {
	a.t.Helper()
	conn, err := grpc.NewClient("unix:"+a.layout().NodeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = conn.Close() })
	return nodev1.NewNodeServiceClient(conn)
}

// until waits for a status.
func (a *alive) until(what string, is func(*nodev1.Status) bool) *nodev1.Status {
	a.t.Helper()
	ctx, cancel := context.WithCancelCause(a.context())
	client, watched := a.client(), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case err := <-a.ended:
			a.ended <- err
			cancel(fmt.Errorf("the node has ended: %w", err))
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	var last *nodev1.Status
	for ctx.Err() == nil {
		stream, err := client.WatchStatus(ctx, &nodev1.WatchStatusRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var answer *nodev1.WatchStatusResponse
			if answer, err = stream.Recv(); err == nil {
				if last = answer.GetStatus(); is(last) {
					return last
				}
			}
		}
	}
	a.t.Fatalf("waiting for %s: %v: %v", what, context.Cause(ctx), last)
	return nil
}

// ready says that the role "api" runs.
func ready(s *nodev1.Status) bool {
	return s.GetStorage().GetState() == clusterv1.StorageState_STORAGE_STATE_OPEN && slices.ContainsFunc(s.GetNode().GetInstances(), func(i *clusterv1.InstanceStatus) bool {
		return i.GetRole() == "api" && i.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY
	})
}

func state(want clusterv1.StorageState) func(*nodev1.Status) bool {
	return func(s *nodev1.Status) bool { return s.GetStorage().GetState() == want }
}

// recovered is what the recovery file of the node holds.
func (a *alive) recovered() []byte {
	a.t.Helper()
	answer, err := a.client().GetRecoveryFile(a.context(), &nodev1.GetRecoveryFileRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	plain, err := age.Decrypt(bytes.NewReader(answer.GetFile()), a.recovery)
	if err != nil {
		a.t.Fatal(err)
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		a.t.Fatal(err)
	}
	return content
}

// uses is what any process has open, or mounted, below the directories.
func uses(t *testing.T, below ...string) (found []string) {
	t.Helper()
	inside := func(path string) bool {
		return slices.ContainsFunc(below, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
	}
	found = watchedFiles(t, below)
	processes, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if _, err := strconv.Atoi(process.Name()); err != nil {
			continue
		}
		proc := filepath.Join("/proc", process.Name())
		links, _ := filepath.Glob(proc + "/fd/*")
		for _, link := range append(links, proc+"/cwd", proc+"/root", proc+"/exe") {
			if target, err := os.Readlink(link); err == nil && inside(target) {
				found = append(found, link+" → "+target)
			}
		}
		mounts, _ := os.ReadFile(proc + "/mountinfo")
		for line := range strings.Lines(string(mounts)) {
			fields := strings.Fields(line)
			if len(fields) > 4 && (inside(fields[3]) || inside(fields[4])) {
				found = append(found, proc+" has mounted "+line)
			}
		}
		maps, _ := os.ReadFile(proc + "/maps")
		for line := range strings.Lines(string(maps)) {
			if fields := strings.Fields(line); len(fields) > 5 && inside(fields[5]) {
				found = append(found, proc+" has mapped "+fields[5])
			}
		}
	}
	return found
}

// lasting is uses without what passes by itself: a process of another test that is just being given mounts of its own has a copy of all of this machine's for a moment.
func lasting(t *testing.T, below ...string) (found []string) {
	t.Helper()
	own := filepath.Join("/proc", strconv.Itoa(os.Getpid()))
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		found = uses(t, below...)
		passing := len(found) > 0
		for _, use := range found {
			if !strings.Contains(use, " has mounted ") || strings.HasPrefix(use, own+" ") {
				passing = false
			}
		}
		if !passing || time.Now().After(deadline) {
			return found
		}
	}
}

// watchedFiles is what this process watches by inotify below the directories: such a watch is open to nobody's eyes, and keeps its file in use.
func watchedFiles(t *testing.T, below []string) (found []string) {
	t.Helper()
	inodes := make(map[string]string)
	for _, dir := range below {
		err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return nil // it was removed meanwhile
			}
			if info, err := entry.Info(); err == nil {
				inodes[strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 16)] = path
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	infos, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, info := range infos {
		content, _ := os.ReadFile(info)
		for line := range strings.Lines(string(content)) {
			if _, after, ok := strings.Cut(line, " ino:"); ok && strings.HasPrefix(line, "inotify ") {
				if path := inodes[strings.Fields(after)[0]]; path != "" {
					found = append(found, info+" watches "+path)
				}
			}
		}
	}
	return found
}

// recorded checks that events of these types are in the journal, in this order, among others.
func (a *alive) recorded(types ...string) {
	a.t.Helper()
	stream, err := a.client().WatchEvents(a.context(), &nodev1.WatchEventsRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	var seen []string
	for err == nil {
		var answer *nodev1.WatchEventsResponse
		if answer, err = stream.Recv(); err == nil {
			for _, event := range answer.GetEvents() {
				seen = append(seen, event.GetType())
			}
		}
	}
	left := types
	for _, kind := range seen {
		if len(left) > 0 && left[0] == kind {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		a.t.Errorf("the events are %q, and %q are not among them in this order", seen, left)
	}
}
