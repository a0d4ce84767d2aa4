package keeper_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

// host is a host in memory, for tests in synthetic time; the tests of the command use a real one.
type host struct {
	configuration string
	path          string // the file that there is
	grants        []role.Grant
	reason        role.StopReason
	directory     event.Value[*hostv1.Directory]
	network       *event.Value[[]string]

	mu        sync.Mutex
	content   *string
	refusal   error
	intruders int // how many replacements find that somebody was there before
	replaced  int
	mounted   bool
	deaf      bool          // nobody is told of changes
	told      chan struct{} // closed when something is put; nil: nobody waits
	state     string
	values    map[string]string
	hang      chan struct{} // closed: nothing hangs

	hostname, machineID string
	unnamed             error

	elsewhere []netip.Addr // what the machine finds in place of what the file says
	stale     time.Duration
	read      time.Time // when the machine last read the file
	cached    []netip.Addr
	lookups   int
}

// self is the node on which the role runs.
const self = "reeve-00112233445566778899aabbccddeeff"

func newHost(content string) *host {
	h := &host{content: &content, path: keeper.DefaultPath, network: new(event.Value[[]string]), state: "Starting", hostname: "former", values: make(map[string]string)}
	h.network.Set([]string{"192.0.2.100"})
	return h
}

func (h *host) NodeID() string                             { return self }
func (h *host) Configuration() []byte                      { return []byte(h.configuration) }
func (h *host) Grants() []role.Grant                       { return h.grants }
func (h *host) StopReason() role.StopReason                { return h.reason }
func (h *host) Logger() hclog.Logger                       { return hclog.NewNullLogger() }
func (h *host) Directory() *event.Value[*hostv1.Directory] { return &h.directory }
func (h *host) Network() *event.Value[[]string]            { return h.network }
func (h *host) Ready()                                     { h.set("Ready") }
func (h *host) Degraded(reason string)                     { h.set("Degraded: " + reason) }

func (h *host) SetValue(name, value string) {
	h.put(func() { h.values[name] = value })
}

func (h *host) SetHostname(_ context.Context, name string) (changed, inPlace bool, err error) {
	h.put(func() {
		changed, inPlace, err = h.hostname != name, h.mounted, h.unnamed
		if err == nil {
			h.hostname = name
		}
	})
	return changed, inPlace, err
}

func (h *host) SetMachineID(_ context.Context, id string) (changed, inPlace bool, err error) {
	h.put(func() {
		switch {
		case h.unnamed != nil:
			err = h.unnamed
		case h.machineID != "" && h.machineID != id:
			err = fmt.Errorf("refused: %w", role.ErrOtherMachineID)
		default:
			changed, h.machineID = h.machineID == "", id
		}
	})
	return changed, false, err
}

// LookupNetIP is the machine's resolver, which reads the file again when what it has read is stale.
func (h *host) LookupNetIP(_ context.Context, _, name string) (found []netip.Addr, err error) {
	h.put(func() {
		h.lookups++
		if h.read.IsZero() || time.Since(h.read) >= h.stale {
			h.read, h.cached = time.Now(), nil
			for line := range strings.Lines(*h.content) {
				if fields := strings.Fields(line); slices.Contains(fields, name) {
					h.cached = append(h.cached, netip.MustParseAddr(fields[0]))
				}
			}
		}
		found = h.cached
		if h.elsewhere != nil {
			found = h.elsewhere
		}
	})
	if len(found) == 0 {
		return nil, errors.New("no such host")
	}
	return found, nil
}

func (h *host) set(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
}

func (h *host) ReadFile(_ context.Context, path string) ([]byte, string, error) {
	if h.hang != nil {
		<-h.hang
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case path != h.path:
		return nil, "", fs.ErrPermission
	case h.refusal != nil:
		return nil, "", h.refusal
	case h.content == nil:
		return nil, "", fs.ErrNotExist
	}
	return []byte(*h.content), digest(*h.content), nil
}

func (h *host) ReplaceFile(_ context.Context, _, expected string, content []byte) (string, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.intruders > 0 {
		h.intruders--
		intruded := fmt.Sprintf("intruder %d\n", h.intruders)
		h.content = &intruded
	}
	if h.refusal != nil {
		return "", false, h.refusal
	}
	if h.content == nil && expected != "" || h.content != nil && expected != digest(*h.content) {
		return "", false, role.ErrFileChanged
	}
	replaced := string(content)
	if h.content == nil || *h.content != replaced {
		h.replaced++
	}
	h.content = &replaced
	return digest(replaced), h.mounted, nil
}

func (h *host) AwaitFile(ctx context.Context, _, expected string) error {
	if h.deaf {
		return errors.ErrUnsupported
	}
	for {
		changed := false
		var told chan struct{}
		h.put(func() {
			changed = h.content == nil && expected != "" || h.content != nil && digest(*h.content) != expected
			told = make(chan struct{})
			h.told = told
		})
		if changed {
			return nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told = nil
			return ctx.Err()
		}
	}
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
	if h.told != nil {
		close(h.told)
		h.told = nil
	}
	change()
}
