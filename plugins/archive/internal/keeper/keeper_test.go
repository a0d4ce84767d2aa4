package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/curatortest"
	"github.com/reeveproject/reeve/plugins/archive/internal/s3test"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// patience bounds waits for what must happen; nothing waits for it when all is well.
const patience = 2 * time.Minute

// host is a host with a configuration, whose state the test sees.
type host struct {
	*role.Host
	configuration string
	state         event.Value[string] // "ready", or the reason why it is degraded
}

func (h *host) Configuration() []byte  { return []byte(h.configuration) }
func (h *host) Ready()                 { h.state.Set("ready") }
func (h *host) Degraded(reason string) { h.state.Set(reason) }

// rig is a role at work, whose curator is the test's.
type rig struct {
	t       *testing.T
	host    *host
	keeper  *Keeper
	curator *curatortest.Curator
	own     string // where the copies of the node are in a directory
	stop    func()
}

// start starts the role, which is granted a directory. Without prepare the curator hands out nothing.
func start(t *testing.T, directory, configuration string, prepare func(*curatortest.Curator)) *rig {
	t.Helper()
	node := roletest.NewCluster(t, 1).Host(0)
	node.Grant("connect", map[string]string{"port": role.AnyPort})
	node.Grant("write-path", map[string]string{"path": directory})
	node.Grant("read-path", map[string]string{"path": "/"})
	r := &rig{t: t, keeper: New(), own: filepath.Join(directory, node.NodeID())}
	if prepare != nil {
		r.curator = curatortest.Start(t, node)
		prepare(r.curator)
	} else {
		node.Instance(t, "curator").Ready()
		r.keeper.silentTime = time.Millisecond
	}
	r.keeper.now = func() time.Time { return time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC) }
	r.keeper.askEvery, r.keeper.firstRetry, r.keeper.lookEvery = time.Millisecond, time.Millisecond, time.Millisecond
	r.host = &host{Host: node.Instance(t, "archive"), configuration: configuration}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.keeper.Run(ctx, r.host) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// await waits until the state has a text.
func (r *rig) await(text string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	state, err := r.host.state.Wait(ctx, func(state string) bool { return strings.Contains(state, text) })
	if err != nil {
		r.t.Fatalf("the role is %q, want %q", state, text)
	}
	return state
}

// until waits for what the role does without telling of it: each round tells that the role is ready.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.host.state.Wait(ctx, func(string) bool { return condition() }); err != nil {
		state, _ := r.host.state.Get()
		r.t.Fatalf("it does not come to that: %s; the role is %q", what, state)
	}
}

// has reports whether there is a copy of a snapshot, byte for byte.
func (r *rig) has(name string, file []byte) bool {
	content, err := os.ReadFile(filepath.Join(r.own, name+".snapshot"))
	return err == nil && bytes.Equal(content, file)
}

// copies are the names in the directory of the node, without the one that is being written.
func (r *rig) copies() string {
	entries, _ := os.ReadDir(r.own)
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".snapshot"); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

var payload = bytes.Repeat([]byte("payload"), 50_000) // some messages

// TestCopies holds that the role copies what there is and what comes, goes on after a connection was lost, and removes what is too much.
func TestCopies(t *testing.T) {
	var first []byte
	r := start(t, t.TempDir(), `{"sameDisk":true,"keep":2}`, func(c *curatortest.Curator) {
		first = c.Add(t, "20261128T180000Z-1", payload)
		c.Break(3)
	})
	r.await("ready")
	if !r.has("20261128T180000Z-1", first) {
		t.Errorf("there is %s", r.copies())
	}
	r.curator.Remove("20261128T180000Z-1") // as the curator removes old ones, and the copy stays
	second := r.curator.Add(t, "20261128T190000Z-2", payload[1:])
	r.until("the second copy", func() bool { return r.has("20261128T190000Z-2", second) && r.has("20261128T180000Z-1", first) })
	r.curator.Add(t, "20261128T200000Z-3", payload[2:])
	r.until("the first copy goes", func() bool { return r.copies() == "20261128T190000Z-2 20261128T200000Z-3" })
	var metrics bytes.Buffer
	r.until("the metrics", func() bool {
		metrics.Reset()
		return r.keeper.WriteMetrics(t.Context(), &metrics) == nil && strings.Contains(metrics.String(), `archive_copies{place="directory"} 2`+"\n") &&
			strings.Contains(metrics.String(), `archive_newest_seconds{place="directory"} 1795896000`+"\n") && strings.Contains(metrics.String(), `archive_failures_total{place="directory"} 0`+"\n")
	})
	// What somebody has cut or removed there is copied again.
	if err := os.Truncate(filepath.Join(r.own, "20261128T190000Z-2.snapshot"), 10); err != nil {
		t.Fatal(err)
	}
	r.until("the copy is whole again", func() bool { return r.has("20261128T190000Z-2", second) })
}

// TestDamagedSnapshot holds that a snapshot that is not what its header says is never a copy, and keeps no other from being one.
func TestDamagedSnapshot(t *testing.T) {
	r := start(t, t.TempDir(), `{"sameDisk":true}`, func(c *curatortest.Curator) {
		c.Add(t, "20261128T180000Z-1", payload)
		c.Add(t, "20261128T190000Z-2", payload)
		c.Damage("20261128T190000Z-2")
		c.Add(t, "20261128T200000Z-3", payload)
		c.Lose("20261128T200000Z-3")
	})
	if reason := r.await("its payload is damaged"); !strings.HasPrefix(reason, "cannot read the snapshot 20261128T190000Z-2") || strings.Contains(reason, r.own) {
		t.Errorf("the role is %q", reason)
	}
	if r.copies() != "20261128T180000Z-1" {
		t.Errorf("there is %s", r.copies())
	}
	r.curator.Remove("20261128T190000Z-2")
	r.await("ready")
}

// TestDirectoryIsGone holds that the role says what is wrong with a directory, and goes on as soon as it is there.
func TestDirectoryIsGone(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "mount")
	var file []byte
	r := start(t, directory, `{"sameDisk":true}`, func(c *curatortest.Curator) { file = c.Add(t, "20261128T180000Z-1", payload) })
	r.await("make " + directory + ", or mount what belongs there")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	r.await("ready")
	if !r.has("20261128T180000Z-1", file) {
		t.Errorf("there is %s", r.copies())
	}
}

// TestDirectoryIsNotMounted holds that the machine's own disk is no place for copies unless it is said to be.
func TestDirectoryIsNotMounted(t *testing.T) {
	directory := t.TempDir()
	r := start(t, directory, ``, func(c *curatortest.Curator) { c.Add(t, "20261128T180000Z-1", payload) })
	r.await("no other file system is mounted at " + directory)
}

// TestWithoutEndpoint holds that a role whose curator hands out nothing says so.
func TestWithoutEndpoint(t *testing.T) {
	r := start(t, t.TempDir(), `{"sameDisk":true}`, nil)
	if reason := r.await("cannot list the snapshots of this node's curator"); !strings.Contains(reason, "serves nothing yet") || strings.Contains(reason, "\n") {
		t.Errorf("the role is %q", reason)
	}
}

// TestBucket holds that the role copies into a bucket besides, with the credentials that the file has at the time.
func TestBucket(t *testing.T) {
	s := s3test.Start(t, true)
	bucket := s.Configuration(t)
	if err := os.WriteFile(bucket.CredentialsFile, []byte(s3test.Credentials("AKIDOTHER")), 0o600); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	document, err := json.Marshal(configuration.Configuration{Directory: directory, SameDisk: true, Bucket: &bucket, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	var file []byte
	r := start(t, directory, string(document), func(c *curatortest.Curator) {
		c.Add(t, "20261128T180000Z-1", payload)
		file = c.Add(t, "20261128T190000Z-2", payload[1:])
	})
	if reason := r.await("does not take the credentials"); strings.Contains(reason, s3test.Secret) || strings.Contains(reason, "directory") {
		t.Errorf("the role is %q", reason)
	}
	r.until("a copy in the directory, which does not wait for the bucket", func() bool { return r.has("20261128T190000Z-2", file) })
	if err := os.WriteFile(bucket.CredentialsFile, []byte(s3test.Credentials(s3test.Key)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.await("ready")
	prefix := "prod/" + r.host.NodeID() + "/"
	if got := s.Object(t, prefix+"20261128T190000Z-2.snapshot"); !bytes.Equal(got, file) {
		t.Errorf("the object has %d bytes of %d", len(got), len(file))
	}
	r.curator.Add(t, "20261128T200000Z-3", payload[2:])
	r.until("one copy in the bucket", func() bool {
		return s.Object(t, prefix+"20261128T200000Z-3.snapshot") != nil && s.Object(t, prefix+"20261128T190000Z-2.snapshot") == nil
	})
	if s.Object(t, prefix+"20261128T180000Z-1.snapshot") != nil {
		t.Error("a copy was made that is too many")
	}
}
