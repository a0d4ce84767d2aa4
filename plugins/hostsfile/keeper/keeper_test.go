package keeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

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
		go func() { ended <- keeper.New(h).Run(ctx, h) }()
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
		if !strings.HasPrefix(line, "#") && line != own {
			entries = append(entries, line)
		}
	}
	if got := strings.Join(entries, ""); got != content {
		t.Errorf("the file holds\n%q, want\n%q", got, content)
	}
}

const (
	own    = "192.0.2.100\t" + self + " " + self + ".node.reeve\n"
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

// The node's own addresses are those that the machine has, at once, whatever the directory still says.
func TestFollowsTheNetwork(t *testing.T) {
	h := newHost("127.0.0.1 localhost\n")
	d := directory("192.0.2.1")
	d.Nodes = append([]*hostv1.DirectoryNode{{NodeId: self, Addresses: []string{"192.0.2.99"}}}, d.Nodes...)
	h.directory.Set(d)
	err := during(t, h, func() {
		want(t, h, "Ready", "127.0.0.1 localhost\n"+first)
		for _, addresses := range []string{"192.0.2.101", "192.0.2.102 2001:db8::102", "fe80::1 192.0.2.103"} {
			h.network.Set(strings.Fields(addresses))
			synctest.Wait()
			_, content, _ := h.now()
			for _, address := range []string{"192.0.2.99", "192.0.2.100", "192.0.2.101", "192.0.2.102", "2001:db8::102", "192.0.2.103", "fe80::1"} {
				should := slices.Contains(strings.Fields(addresses), address) && address != "fe80::1"
				if got := strings.Contains(content, "\n"+address+"\t"+self+" "); got != should {
					t.Errorf("with the addresses %s the file has %s: %t", addresses, address, got)
				}
			}
		}
		// One after the other without a moment in between: the last one counts.
		for n := range 20 {
			h.network.Set([]string{fmt.Sprint("198.51.100.", n)})
		}
		synctest.Wait()
		if _, content, _ := h.now(); strings.Count(content, "\t"+self+" ") != 1 || !strings.Contains(content, "198.51.100.19\t") {
			t.Errorf("the file holds %q", content)
		}
		_, _, before := h.now()
		h.network.Set([]string{"198.51.100.19"})
		h.directory.Set(d)
		time.Sleep(time.Hour)
		if _, _, after := h.now(); after != before {
			t.Errorf("the file was written %d times though nothing changed", after-before)
		}
		// Without an address of its own the node is what the directory says.
		h.network.Set(nil)
		synctest.Wait()
		if state, content, _ := h.now(); state != "Ready" || !strings.Contains(content, "192.0.2.99\t"+self+" ") {
			t.Errorf("the role is %q, and the file holds %q", state, content)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// At the start the directory comes before the node's own addresses, or those do not come at all.
func TestOwnAddressesComeLater(t *testing.T) {
	h := newHost("")
	h.network = new(event.Value[[]string])
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Starting", "")
		time.Sleep(10 * time.Second)
		want(t, h, "Degraded: this node has no address", first)
		h.network.Set([]string{"192.0.2.100"})
		want(t, h, "Ready", first)
	}); err != nil {
		t.Error(err)
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
	rewrite := func(h *host, content string) {
		h.put(func() { h.content = &content })
	}
	for deaf, within := range map[bool]time.Duration{false: 2 * time.Second, true: time.Minute} {
		t.Run(fmt.Sprintf("in between, deaf %t", deaf), func(t *testing.T) {
			h := newHost("a\n")
			h.deaf = deaf
			h.directory.Set(directory("192.0.2.1"))
			if err := during(t, h, func() {
				synctest.Wait()
				time.Sleep(5 * time.Second)
				rewrite(h, "b\n")
				time.Sleep(within)
				want(t, h, "Ready", "b\n"+first)
				// What others change of their own is theirs.
				rewrite(h, "c\n"+strings.TrimPrefix(*h.content, "b\n"))
				time.Sleep(within)
				want(t, h, "Ready", "c\n"+first)
				if h.replaced != 2 {
					t.Errorf("the file was written %d times", h.replaced)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("again and again", func(t *testing.T) {
		h := newHost("a\n")
		h.directory.Set(directory("192.0.2.1"))
		if err := during(t, h, func() {
			want(t, h, "Ready", "a\n"+first)
			for n := range 5 {
				rewrite(h, "b\n")
				time.Sleep(5 * time.Second)
				state := "Ready"
				if n >= 2 {
					state = "Degraded: another program keeps rewriting /etc/hosts"
				}
				want(t, h, state, "b\n"+first)
			}
			time.Sleep(2 * time.Minute)
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
	for _, document := range []string{`{"path": "hosts"}`, `{"path": "/etc/../hosts"}`, `{"path": "/etc/"}`, `{"path": ""}`, `{"path": "/"}`, `{"path": 1}`, `{"file": "/x"}`, `[]`,
		`{"hostname": "10"}`, `{"hostname": "0x10"}`, `{"hostname": "a.0X"}`, `{"hostname": "a.7"}`, `{"hostname": "localhost"}`, `{"hostname": "Localhost.localdomain"}`, `{"hostname": "a.localhost"}`} {
		var problems *role.ConfigurationError
		if _, err := keeper.ParseConfiguration([]byte(document)); !errors.As(err, &problems) {
			t.Errorf("%s: %v", document, err)
		}
	}
	for _, document := range []string{`{"hostname": "0x10.example"}`, `{"hostname": "10-a"}`, `{"hostname": "0xg"}`, `{"hostname": "localhosts"}`} {
		if _, err := keeper.ParseConfiguration([]byte(document)); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
	h := newHost("")
	h.configuration = `{"path": ""}`
	if err := keeper.New(h).Run(t.Context(), h); err == nil {
		t.Error("the role runs with a configuration that is wrong")
	}
}

// The cluster knows the schema only: what the role refuses of a host name is refused by the schema, before it is stored.
func TestSchemaOfTheHostname(t *testing.T) {
	var schema struct {
		Properties struct {
			Hostname struct {
				AnyOf []struct {
					MaxLength int
					Pattern   string
					Not       struct{ Pattern string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(keeper.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	text := schema.Properties.Hostname.AnyOf[1]
	form, other := regexp.MustCompile(text.Pattern), regexp.MustCompile(text.Not.Pattern)
	for _, name := range []string{"web-1.example", "10", "0x10", "0x", "a.0xF", "10.a", "a.b.7", "0xg", "localhost", "LOCALHOST.localdomain", "a.localhost", "localhosts", "-", "a-", "a..b", strings.Repeat("a", 64), ""} {
		_, err := keeper.ParseConfiguration(fmt.Appendf(nil, `{"hostname": %q}`, name))
		fits := len(name) <= text.MaxLength && form.MatchString(name) && !other.MatchString(name)
		if fits != (err == nil) {
			t.Errorf("%q fits the schema: %t, and the role says %v", name, fits, err)
		}
	}
}
