package keeper_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a host in memory, for tests in synthetic time; the tests of the command use a real one.
type host struct {
	configuration string
	directory     event.Value[*hostv1.Directory]

	mu        sync.Mutex
	content   *string
	refusal   error
	intruders int // how many replacements find that somebody was there before
	replaced  int
	state     string
}

func newHost(content string) *host { return &host{content: &content, state: "Starting"} }

func (h *host) Configuration() []byte                      { return []byte(h.configuration) }
func (h *host) Grants() []role.Grant                       { return nil }
func (h *host) Logger() hclog.Logger                       { return hclog.NewNullLogger() }
func (h *host) Directory() *event.Value[*hostv1.Directory] { return &h.directory }
func (h *host) Ready()                                     { h.set("Ready") }
func (h *host) Degraded(reason string)                     { h.set("Degraded: " + reason) }

func (h *host) set(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
}

func (h *host) ReadFile(_ context.Context, path string) ([]byte, string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case path != keeper.DefaultPath:
		return nil, "", fs.ErrPermission
	case h.refusal != nil:
		return nil, "", h.refusal
	case h.content == nil:
		return nil, "", fs.ErrNotExist
	}
	return []byte(*h.content), digest(*h.content), nil
}

func (h *host) ReplaceFile(_ context.Context, _, expected string, content []byte) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.intruders > 0 {
		h.intruders--
		intruded := fmt.Sprintf("intruder %d\n", h.intruders)
		h.content = &intruded
	}
	if h.refusal != nil {
		return "", h.refusal
	}
	if h.content == nil && expected != "" || h.content != nil && expected != digest(*h.content) {
		return "", role.ErrFileChanged
	}
	h.replaced++
	replaced := string(content)
	h.content = &replaced
	return digest(replaced), nil
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// now is what the role has made of the host: its state, and the file's lines between markers.
func (h *host) now() (state, content string, replaced int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.content != nil {
		content = *h.content
	}
	return h.state, content, h.replaced
}

func (h *host) put(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func directory(addresses ...string) *hostv1.Directory {
	d := &hostv1.Directory{}
	for n, address := range addresses {
		d.Nodes = append(d.Nodes, &hostv1.DirectoryNode{NodeId: fmt.Sprint("reeve-", n), Addresses: strings.Fields(address)})
	}
	return d
}

// during runs the role in synthetic time while test runs, and returns how it ended.
func during(t *testing.T, h *host, test func()) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- keeper.Run(ctx, h) }()
		synctest.Wait()
		test()
		cancel()
		err = <-ended
	})
	return err
}

func want(t *testing.T, h *host, state string, content string) {
	t.Helper()
	synctest.Wait()
	gotState, got, _ := h.now()
	if !strings.HasPrefix(gotState, state) {
		t.Errorf("the role is %q, want %q", gotState, state)
	}
	var entries []string
	for line := range strings.Lines(got) {
		if !strings.HasPrefix(line, "#") {
			entries = append(entries, line)
		}
	}
	if got := strings.Join(entries, ""); got != content {
		t.Errorf("the file holds\n%q, want\n%q", got, content)
	}
}

const (
	first  = "192.0.2.1\treeve-0 reeve-0.node.reeve\n"
	second = "192.0.2.2\treeve-1 reeve-1.node.reeve\n"
)

func TestFollowsTheDirectory(t *testing.T) {
	h := newHost("127.0.0.1 localhost\n")
	err := during(t, h, func() {
		want(t, h, "Starting", "127.0.0.1 localhost\n")
		h.directory.Set(directory("192.0.2.1"))
		want(t, h, "Ready", "127.0.0.1 localhost\n"+first)
		h.directory.Set(directory("192.0.2.1", "192.0.2.2"))
		want(t, h, "Ready", "127.0.0.1 localhost\n"+first+second)
		h.directory.Set(directory("", "192.0.2.2"))
		want(t, h, "Ready", "127.0.0.1 localhost\n"+second)
		_, _, before := h.now()
		h.directory.Set(directory("", "192.0.2.2"))
		time.Sleep(time.Hour)
		if _, _, after := h.now(); after != before {
			t.Errorf("the file was replaced %d times though nothing changed", after-before)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if _, content, _ := h.now(); content != "127.0.0.1 localhost\n" {
		t.Errorf("the role leaves %q", content)
	}
}

// Only what can be an address of another machine is written, and nothing that would be more than an address and a name.
func TestEntries(t *testing.T) {
	h := newHost("")
	d := directory("192.0.2.1 192.0.2.1 ::ffff:192.0.2.1 2001:db8::1 fe80::1 fe80::1%eth0 0.0.0.0 224.0.0.1 host.example")
	d.Nodes = append(d.Nodes,
		&hostv1.DirectoryNode{NodeId: "reeve-9", Addresses: []string{"192.0.2.9\n10.0.0.1 bank.example"}},
		&hostv1.DirectoryNode{NodeId: "evil\n10.0.0.1 bank.example", Addresses: []string{"192.0.2.3"}},
		&hostv1.DirectoryNode{NodeId: "evil # x", Addresses: []string{"192.0.2.3"}},
		&hostv1.DirectoryNode{Addresses: []string{"192.0.2.3"}},
	)
	h.directory.Set(d)
	if err := during(t, h, func() {
		want(t, h, "Ready", first+"2001:db8::1\treeve-0 reeve-0.node.reeve\n")
	}); err != nil {
		t.Error(err)
	}
}

func TestAFileThatIsNotThereIsMade(t *testing.T) {
	h := newHost("")
	h.content = nil
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() { want(t, h, "Ready", first) }); err != nil {
		t.Error(err)
	}
	if _, content, _ := h.now(); content != "" {
		t.Errorf("the role leaves %q", content)
	}
}

func TestOthersWriteTheFileToo(t *testing.T) {
	t.Run("at the same time", func(t *testing.T) {
		h := newHost("a\n")
		h.intruders = 3
		h.directory.Set(directory("192.0.2.1"))
		if err := during(t, h, func() { want(t, h, "Ready", "intruder 0\n"+first) }); err != nil {
			t.Error(err)
		}
	})
	t.Run("all the time", func(t *testing.T) {
		h := newHost("a\n")
		h.intruders = 15
		h.directory.Set(directory("192.0.2.1"))
		if err := during(t, h, func() {
			want(t, h, "Degraded: /etc/hosts is changed by others all the time", "intruder 5\n")
			time.Sleep(time.Second)
			want(t, h, "Ready", "intruder 0\n"+first)
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("in between", func(t *testing.T) {
		h := newHost("a\n")
		h.directory.Set(directory("192.0.2.1"))
		if err := during(t, h, func() {
			synctest.Wait()
			h.put(func() {
				other := "b\n"
				h.content = &other
			})
			time.Sleep(time.Minute)
			want(t, h, "Ready", "b\n"+first)
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestDegraded(t *testing.T) {
	h := newHost("a\n")
	h.refusal = fmt.Errorf("refused: %w", fs.ErrPermission)
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Degraded: the role may not replace /etc/hosts: grant it replace-file", "a\n")
		h.put(func() { h.refusal = errors.New("the disk is full") })
		time.Sleep(10 * time.Second)
		want(t, h, "Degraded: the disk is full", "a\n")
		h.put(func() { h.refusal = nil })
		time.Sleep(10 * time.Second)
		want(t, h, "Ready", "a\n"+first)
	}); err != nil {
		t.Error(err)
	}
}

// A block that cannot be removed is an error, so that somebody hears of it.
func TestTheBlockStays(t *testing.T) {
	h := newHost("a\n")
	h.directory.Set(directory("192.0.2.1"))
	err := during(t, h, func() {
		want(t, h, "Ready", "a\n"+first)
		h.put(func() { h.refusal = errors.New("the disk is full") })
	})
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("got: %v", err)
	}
}

func TestConfiguration(t *testing.T) {
	granted := []role.Grant{{Name: "other", Parameters: map[string]string{"path": "/no"}}, {Name: "replace-file", Parameters: map[string]string{"path": "/srv/granted"}}}
	tests := []struct {
		document string
		grants   []role.Grant
		want     string
	}{
		{"", granted, "/srv/granted"},
		{"{}", granted, "/srv/granted"},
		{"", granted[:1], "/etc/hosts"},
		{"{}", nil, "/etc/hosts"},
		{`{"path": "/srv/hosts"}`, granted, "/srv/hosts"},
	}
	for _, test := range tests {
		if got, err := keeper.ParseConfiguration([]byte(test.document)); err != nil || got.File(test.grants) != test.want {
			t.Errorf("%s with the grants %v: %q, %v", test.document, test.grants, got.File(test.grants), err)
		}
	}
	for _, document := range []string{`{"path": "hosts"}`, `{"path": "/etc/../hosts"}`, `{"path": "/etc/"}`, `{"path": ""}`, `{"path": "/"}`, `{"path": 1}`, `{"file": "/x"}`, `[]`} {
		var problems *role.ConfigurationError
		if _, err := keeper.ParseConfiguration([]byte(document)); !errors.As(err, &problems) {
			t.Errorf("%s: %v", document, err)
		}
	}
	h := newHost("")
	h.configuration = `{"path": ""}`
	if err := keeper.Run(t.Context(), h); err == nil {
		t.Error("the role runs with a configuration that is wrong")
	}
}
