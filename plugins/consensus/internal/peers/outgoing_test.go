package peers_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// places is who is where, as a test says.
type places struct {
	mu      sync.Mutex
	removed bool
	at      []uint64
	once    bool // whether at is given up once somebody has asked for it
}

func (p *places) Admit(name peers.Name) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return errors.New(name.Node + " was removed")
	}
	return nil
}

func (p *places) At(string) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at
	if p.once {
		p.at = nil
	}
	return at
}

func (p *places) set(change func(*places)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// reaching is an Outgoing of reeve-2, and the address of a member of reeve-1, which answers after wait. It looks elsewhere too, if hosts are given.
func reaching(t *testing.T, wait <-chan struct{}, elsewhere ...string) (*peers.Outgoing, *places, string) {
	return reachingAt(t, wait, time.Now, func() []string { return elsewhere })
}

func reachingAt(t *testing.T, wait <-chan struct{}, clock func() time.Time, elsewhere func() []string) (*peers.Outgoing, *places, string) {
	t.Helper()
	pair := credentialed(t, peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: 0xab}, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: 0xac})
	bound, err := peers.Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	listener := peers.Serve(hclog.NewNullLogger(), bound, always(pair[0]), open{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		// Not to the end of the request: the listener ends a connection over which nothing comes as well.
		select {
		case <-wait:
		case <-over:
		}
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(listener.Close)
	t.Cleanup(func() { close(over) })
	known := &places{}
	outgoing := peers.NewOutgoing(peers.OutgoingConfig{
		Log: hclog.NewNullLogger(), Places: known, DialTimeout: patience,
		Credentials: func() (*peers.Credentials, error) { return pair[1], nil }, Elsewhere: elsewhere, Now: clock,
	})
	t.Cleanup(outgoing.Close)
	return outgoing, known, listener.Addr().String()
}

func fetch(through http.RoundTripper, address string) (io.ReadCloser, error) {
	answer, err := (&http.Client{Transport: through}).Get(peers.URL(address))
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// TestOutgoingLooksElsewhere finds a member that is not at its address any more on the machines that an operator names, by address and by DNS name, and takes nobody else for it.
func TestOutgoingLooksElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		at        []uint64
		elsewhere []string
		problem   string
	}{
		"by address":                       {at: []uint64{0xab}, elsewhere: []string{"127.0.0.3", "127.0.0.1"}},
		"by name":                          {at: []uint64{0xab}, elsewhere: []string{"nobody.invalid", "localhost"}},
		"another member is there":          {at: []uint64{0xaf}, elsewhere: []string{"127.0.0.1"}, problem: "member ab of node reeve-1 answers there in place of member af"},
		"whose address is known of nobody": {elsewhere: []string{"127.0.0.1"}, problem: "connection refused"},
		"nowhere":                          {at: []uint64{0xab}, problem: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			outgoing, known, address := reaching(t, now(), c.elsewhere...)
			known.set(func(p *places) { p.at = c.at })
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			body, err := fetch(outgoing.Messages(), net.JoinHostPort("127.0.0.2", port))
			if err == nil {
				body.Close()
			}
			if (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%v, want %q", err, c.problem)
			}
		})
	}
}

// TestOutgoingLooksElsewhereNowAndThen holds that a member which is down is looked for once in five seconds, however often it is dialled, and that one which was found is dialled there meanwhile.
func TestOutgoingLooksElsewhereNowAndThen(t *testing.T) {
	var clock, looks atomic.Int64
	var host atomic.Value
	host.Store("127.0.0.3")
	outgoing, known, address := reachingAt(t, now(), func() time.Time { return time.Unix(0, clock.Load()) }, func() []string {
		looks.Add(1)
		return []string{host.Load().(string)}
	})
	known.set(func(p *places) { p.at = []uint64{0xab} })
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	try := func(found bool, want int64) {
		t.Helper()
		for _, through := range []http.RoundTripper{outgoing.Messages(), outgoing.Streams(), outgoing.Streams()} {
			body, err := fetch(through, net.JoinHostPort("127.0.0.2", port))
			if err == nil {
				body.Close()
			}
			if (err == nil) != found {
				t.Errorf("found %v: %v", found, err)
			}
		}
		if looks.Load() != want {
			t.Errorf("looked for it %d times, want %d", looks.Load(), want)
		}
	}
	try(false, 1)
	clock.Add(int64(5*time.Second) - 1)
	host.Store("127.0.0.1")
	try(false, 1)
	clock.Add(1)
	try(true, 2)
	clock.Add(int64(5 * time.Second))
	try(true, 3)
}

// TestOutgoingTakesNobodyElseElsewhere holds that who answers elsewhere is the member that was looked for, although nobody has its address any more by then.
func TestOutgoingTakesNobodyElseElsewhere(t *testing.T) {
	for member, problem := range map[uint64]string{0xab: "", 0xaf: "member ab of node reeve-1 answers there in place of member af"} {
		outgoing, known, address := reaching(t, now(), "127.0.0.1")
		known.set(func(p *places) { p.at, p.once = []uint64{member}, true })
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		body, err := fetch(outgoing.Messages(), net.JoinHostPort("127.0.0.2", port))
		if err == nil {
			body.Close()
		}
		if (err != nil) != (problem != "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%v, want %q", err, problem)
		}
	}
}

func now() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}

// TestOutgoingReachesTheMemberOfAnAddress speaks to who is a member, and at the address of that one.
func TestOutgoingReachesTheMemberOfAnAddress(t *testing.T) {
	outgoing, known, address := reaching(t, now())
	for _, at := range [][]uint64{nil, {0xab}, {0xaa, 0xab}} {
		known.set(func(p *places) { p.at = at })
		body, err := fetch(outgoing.Streams(), address)
		if err != nil {
			t.Fatalf("with %x there: %v", at, err)
		}
		body.Close()
	}
	known.set(func(p *places) { p.at = []uint64{0xaf} })
	if _, err := fetch(outgoing.Messages(), address); err == nil || !strings.Contains(err.Error(), "member ab of node reeve-1 answers there in place of member af") {
		t.Errorf("another member than the one whose address it is: %v", err)
	}
	known.set(func(p *places) { p.at, p.removed = nil, true })
	if _, err := fetch(outgoing.Messages(), address); err == nil || !strings.Contains(err.Error(), "reeve-1 was removed") {
		t.Errorf("a removed member: %v", err)
	}
	if _, err := (&http.Client{Transport: outgoing.Messages()}).Get("http://" + address); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("without TLS: %v", err)
	}
}

// TestSweepClosesWhatGoesToAFormerMember ends a connection that stands when its member is removed.
func TestSweepClosesWhatGoesToAFormerMember(t *testing.T) {
	outgoing, known, address := reaching(t, make(chan struct{}))
	body, err := fetch(outgoing.Streams(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	outgoing.Sweep()
	if !outgoing.Connected(0xab) {
		t.Fatal("the connection to a member was closed")
	}
	known.set(func(p *places) { p.removed = true })
	if outgoing.Sweep(); outgoing.Connected(0xab) {
		t.Fatal("the connection is still there")
	}
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the answer of a removed member came to its end")
	}
}

// TestSilentStreamEnds checks that a stream over which nothing comes is ended: a member that is cut off says nothing.
func TestSilentStreamEnds(t *testing.T) {
	t.Parallel()
	outgoing, _, address := reaching(t, make(chan struct{}))
	body, err := fetch(outgoing.Streams(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	_, err = io.ReadAll(body)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestSweepClosesWhatGoesToAnotherMembersAddress ends a connection to a member that has moved, when another one has its former address.
func TestSweepClosesWhatGoesToAnotherMembersAddress(t *testing.T) {
	outgoing, known, address := reaching(t, make(chan struct{}))
	body, err := fetch(outgoing.Streams(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	for _, at := range [][]uint64{nil, {0xab}} {
		known.set(func(p *places) { p.at = at })
		if outgoing.Sweep(); !outgoing.Connected(0xab) {
			t.Fatalf("closed with %x there", at)
		}
	}
	known.set(func(p *places) { p.at = []uint64{0xaf} })
	if outgoing.Sweep(); outgoing.Connected(0xab) {
		t.Error("the connection is still there")
	}
}

// TestOutgoingAsksNobodyOnceItIsClosed holds that a connection which is tried after the end asks nobody who has which address: the member may be about to start again.
func TestOutgoingAsksNobodyOnceItIsClosed(t *testing.T) {
	outgoing, known, address := reaching(t, nil, "127.0.0.1")
	known.set(func(p *places) { p.at, p.once = []uint64{7}, true })
	outgoing.Close()
	if body, err := fetch(outgoing.Messages(), address); err == nil {
		_ = body.Close()
		t.Error("it still connects")
	}
	if at := known.At(address); len(at) != 1 {
		t.Error("somebody was asked")
	}
}
