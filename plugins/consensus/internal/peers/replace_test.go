package peers_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// replacement is a CA at each step of its replacement: steady, prepared, active, and steady again.
func replacement(t *testing.T) []*peers.Authority {
	t.Helper()
	first, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	all := []*peers.Authority{first}
	for _, step := range []func(*peers.Authority) (*peers.Authority, error){
		func(a *peers.Authority) (*peers.Authority, error) { return a.Prepare("cluster-a") }, (*peers.Authority).Activate, (*peers.Authority).Retire,
	} {
		next, err := step(all[len(all)-1])
		if err != nil {
			t.Fatal(err)
		}
		content, err := next.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		read, err := peers.ParseAuthority(content)
		if err != nil || read.Mark() != next.Mark() || read.Phase() != next.Phase() {
			t.Fatalf("a CA of phase %d was read as one of phase %d, %v", next.Phase(), read.Phase(), err)
		}
		all = append(all, read)
	}
	return all
}

// install has a member follow a CA.
func install(t *testing.T, files peers.Files, authority *peers.Authority, name peers.Name) *peers.Credentials {
	t.Helper()
	key, err := files.Key()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Issue(key.Public(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Install(leaf, authority.Certificates(), name); err != nil {
		t.Fatal(err)
	}
	credentials, err := files.Load()
	if err != nil {
		t.Fatal(err)
	}
	return credentials
}

var (
	one = peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: 0xab}
	two = peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: 0xac}
)

// TestReplacementGoesOnlyForward: each step has one that comes next, and no member takes a former one for the present one.
func TestReplacementGoesOnlyForward(t *testing.T) {
	all := replacement(t)
	for n, phase := range []peers.Phase{peers.Steady, peers.Prepared, peers.Active, peers.Steady} {
		_, prepare := all[n].Prepare("cluster-a")
		_, activate := all[n].Activate()
		_, retire := all[n].Retire()
		if all[n].Phase() != phase || (prepare == nil) != (phase == peers.Steady) || (activate == nil) != (phase == peers.Prepared) || (retire == nil) != (phase == peers.Active) {
			t.Errorf("step %d: phase %d; prepare: %v, activate: %v, retire: %v", n, all[n].Phase(), prepare, activate, retire)
		}
		credentials := install(t, peers.Files{Directory: t.TempDir()}, all[n], one)
		for m, other := range all {
			if credentials.Follows(other) != (n == m) || credentials.Ahead(other) != (n > m) {
				t.Errorf("credentials of step %d: they follow step %d: %t, are ahead of it: %t", n, m, credentials.Follows(other), credentials.Ahead(other))
			}
		}
	}
	stranger, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	made := install(t, peers.Files{Directory: t.TempDir()}, stranger, one)
	for n, authority := range all {
		if made.Follows(authority) || made.Ahead(authority) {
			t.Errorf("credentials that a member has made for itself are taken for those of step %d, or a later one", n)
		}
	}
	// What is needed no more is kept no more: the former key is of no use to anybody but who has a copy.
	for n, keys := range []int{1, 2, 1, 1} {
		content, err := all[n].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(content, []byte("BEGIN PRIVATE KEY")); got != keys {
			t.Errorf("step %d is stored with %d keys, want %d", n, got, keys)
		}
	}
}

// TestMembersSpeakOverOneStep has two members, of which one has come a step further, reach each other, and those that are further apart not: so a step waits for all of them.
func TestMembersSpeakOverOneStep(t *testing.T) {
	all := replacement(t)
	for n := range all {
		for m := range all {
			server := install(t, peers.Files{Directory: t.TempDir()}, all[n], one)
			client := install(t, peers.Files{Directory: t.TempDir()}, all[m], two)
			err := get(client, one.Member, serve(t, always(server)).Addr().String())
			if near := n-m >= -1 && n-m <= 1; near != (err == nil) {
				t.Errorf("a member at step %d and one at step %d: %v", n, m, err)
			}
		}
	}
}

// serve serves by a listener that, other than that of Bind, ends no connection over which nothing comes.
func serve(t *testing.T, credentials peers.Source) *peers.Listener {
	t.Helper()
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := peers.Serve(hclog.NewNullLogger(), bound, credentials, open{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(listener.Close)
	return listener
}

// TestRetiredCAHasNoConnections closes what was connected by a CA that is trusted no more, on both sides, and lets nobody in by it.
func TestRetiredCAHasNoConnections(t *testing.T) {
	all := replacement(t)
	var server, client atomic.Pointer[peers.Credentials]
	source := func(of *atomic.Pointer[peers.Credentials]) peers.Source {
		return func() (*peers.Credentials, error) { return of.Load(), nil }
	}
	serverFiles, clientFiles := peers.Files{Directory: t.TempDir()}, peers.Files{Directory: t.TempDir()}
	server.Store(install(t, serverFiles, all[0], one))
	client.Store(install(t, clientFiles, all[0], two))
	listener := serve(t, source(&server))
	outgoing := peers.NewOutgoing(peers.OutgoingConfig{Log: hclog.NewNullLogger(), Places: &places{}, Credentials: source(&client), DialTimeout: patience})
	t.Cleanup(outgoing.Close)
	messages := outgoing.Messages() // which end by nobody's silence
	stream := func() io.ReadCloser {
		answer, err := (&http.Client{Transport: messages}).Get(peers.URL(listener.Addr().String()) + "/stream")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer.Body
	}
	former := stream()
	incoming, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{ // by who does not look whom he speaks to, so that only the listener can end it
		Certificates: []tls.Certificate{pairIn(t, clientFiles)}, InsecureSkipVerify: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer incoming.Close()
	for _, step := range all[1:3] {
		server.Store(install(t, serverFiles, step, one))
		client.Store(install(t, clientFiles, step, two))
		listener.Sweep()
		outgoing.Sweep()
		if !listener.Connected(two.Member) || !outgoing.Connected(one.Member) {
			t.Fatalf("a connection ended in phase %d, in which both CAs are trusted", step.Phase())
		}
	}
	_ = stream() // by the new one
	client.Store(install(t, clientFiles, all[3], two))
	outgoing.Sweep()
	ended := make(chan error, 1)
	go func() {
		_, err := former.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("something comes from a member whose CA is trusted no more")
		}
	case <-time.After(patience):
		t.Fatal("a connection to a member outlived the CA of its certificate")
	}
	if !outgoing.Connected(one.Member) {
		t.Error("the connection by the new CA ended with the other one")
	}
	server.Store(install(t, serverFiles, all[3], one))
	listener.Sweep()
	if err := incoming.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := incoming.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection from a member outlived the CA of its certificate: %v", err)
	}
	stolen := install(t, peers.Files{Directory: t.TempDir()}, all[0], two) // by who has the key of the former CA
	if err := get(stolen, one.Member, listener.Addr().String()); err == nil {
		t.Error("a certificate of the former CA is taken")
	}
}

// pairIn is what a member shows, as whoever copied its files has it.
func pairIn(t *testing.T, files peers.Files) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(files.Directory, "certificate.pem"), filepath.Join(files.Directory, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestInstallEndsAnywhere starts with what there is when a member was ended between the two files that it writes: the CAs are always new, and the certificate may be the former one.
func TestInstallEndsAnywhere(t *testing.T) {
	all := replacement(t)
	for n := 1; n < len(all); n++ {
		files := peers.Files{Directory: t.TempDir()}
		install(t, files, all[n-1], one)
		path := filepath.Join(files.Directory, "certificate.pem")
		former, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		install(t, files, all[n], one)
		if err := os.WriteFile(path, former, 0o600); err != nil {
			t.Fatal(err)
		}
		credentials, err := files.Load()
		if err != nil {
			t.Errorf("ended on the way to step %d: %v", n, err)
			continue
		}
		if credentials.Ahead(all[n]) || !credentials.Ahead(all[n-1]) {
			t.Errorf("ended on the way to step %d, it does not go on there", n)
		}
	}
	files := peers.Files{Directory: t.TempDir()}
	install(t, files, all[0], one)
	if err := os.WriteFile(filepath.Join(files.Directory, "ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Load(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("without any CA: %v", err)
	}
}
