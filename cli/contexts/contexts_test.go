package contexts_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/identity"
)

// changeVariable makes this program one that changes the contexts of a directory, for the tests of several processes.
const changeVariable = "CHANGE_CONTEXTS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(changeVariable); dir != "" {
		os.Exit(change(dir))
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// authority is the CA of a cluster.
type authority struct {
	domain      string
	key         ed25519.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t testing.TB, clusterID string) *authority {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{domain: identity.TrustDomain(clusterID), key: key}
	a.certificate = sign(t, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{identity.ClusterURI(a.domain)},
		NotBefore: start.AddDate(-1, 0, 0), NotAfter: start.AddDate(1, 0, 0),
	}, nil, key.Public(), key)
	return a
}

func sign(t testing.TB, template, parent *x509.Certificate, public, signer any) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(1)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// session makes a session whose certificate is received at start and is good for an hour.
func (a *authority) session(t testing.TB, operator string, ends time.Time) *contexts.Session {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	until := start.Add(time.Hour)
	if until.After(ends) {
		until = ends
	}
	leaf := sign(t, &x509.Certificate{
		URIs:      []*url.URL{identity.SessionURI(a.domain, identity.Session{Operator: operator, ID: "0123456789abcdef", Ends: ends})},
		NotBefore: start.Add(-time.Hour), NotAfter: until,
	}, a.certificate, public, a.key)
	session, err := contexts.NewSession(key, []*x509.Certificate{leaf}, "operator", start)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func (a *authority) context(name string) contexts.Context {
	return contexts.Context{
		Name: name, CA: contexts.EncodeCertificates([]*x509.Certificate{a.certificate}), Socket: "/run/reeve/node.sock", Address: "c.example:7443",
		Curators: []string{"192.0.2.1:7443"}, Nodes: []contexts.Node{{ID: "reeve-1", Address: "192.0.2.1:7444"}}, KeyFile: "/home/alice/key",
	}
}

func put(t *testing.T, store *contexts.Store, entries ...contexts.Context) {
	t.Helper()
	if err := store.Update(t.Context(), func(config *contexts.Config) error {
		for _, entry := range entries {
			config.Put(entry)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, store *contexts.Store, name string, session *contexts.Session) {
	t.Helper()
	lock, err := store.LockSession(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if err := lock.Write(session); err != nil {
		t.Fatal(err)
	}
}

func TestContextsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "reeve")
	store, ca := contexts.New(dir), newAuthority(t, "c0ffee")
	if config, err := store.Load(); err != nil || len(config.Contexts) != 0 {
		t.Fatalf("without a directory: %v, %v", config, err)
	}
	put(t, store, ca.context("lab"), ca.context("attic"))
	if err := store.Update(t.Context(), func(config *contexts.Config) error { config.Current = "lab"; return nil }); err != nil {
		t.Fatal(err)
	}
	config, err := contexts.New(dir).Load()
	if err != nil {
		t.Fatal(err)
	}
	lab := config.Find("lab")
	if config.Current != "lab" || len(config.Contexts) != 2 || config.Contexts[0].Name != "attic" || lab == nil || lab.ClusterID() != "c0ffee" {
		t.Errorf("%+v", config)
	}
	if lab.KeyFile != "/home/alice/key" || lab.Curators[0] != "192.0.2.1:7443" || lab.Nodes[0].ID != "reeve-1" || lab.Address != "c.example:7443" {
		t.Errorf("%+v", lab)
	}
	config.Remove("lab")
	if config.Current != "" || config.Find("lab") != nil {
		t.Errorf("after removal: %+v", config)
	}
	session := ca.session(t, "alice", start.Add(12*time.Hour))
	write(t, store, "lab", session)
	for path, want := range map[string]fs.FileMode{
		dir: 0o700, filepath.Join(dir, "sessions"): 0o700, store.ConfigFile(): 0o600, filepath.Join(dir, "sessions", "lab.json"): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	// A directory that was opened is closed again.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, store, ca.context("barn"))
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestSessions(t *testing.T) {
	store, ca := contexts.New(t.TempDir()), newAuthority(t, "c0ffee")
	if _, err := store.Session("lab"); !errors.Is(err, contexts.ErrNoSession) {
		t.Errorf("without a session: %v", err)
	}
	first := ca.session(t, "alice", start.Add(12*time.Hour))
	write(t, store, "lab", first)
	read, err := store.Session("lab")
	if err != nil {
		t.Fatal(err)
	}
	if read.Operator != "alice" || read.Role != "operator" || !read.Ends.Equal(start.Add(12*time.Hour)) || read.TrustDomain() != "c0ffee.reeve" ||
		!read.Received.Equal(start) || read.Who() != "operator alice" || ca.session(t, "", start.Add(time.Hour)).Who() != "owner" {
		t.Errorf("%+v", read)
	}
	if !read.Certificate().PrivateKey.(ed25519.PrivateKey).Equal(first.Certificate().PrivateKey.(ed25519.PrivateKey)) {
		t.Error("the key is another one")
	}
	lock, err := store.LockSession(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	for _, want := range []bool{true, false} {
		if was, err := lock.Forget(); was != want || err != nil {
			t.Errorf("forgotten: %t, %v", was, err)
		}
	}
	if _, err := store.Session("lab"); !errors.Is(err, contexts.ErrNoSession) {
		t.Errorf("after it was forgotten: %v", err)
	}
}

func TestSessionTimes(t *testing.T) {
	ca := newAuthority(t, "c0ffee")
	long, short := ca.session(t, "alice", start.Add(12*time.Hour)), ca.session(t, "alice", start.Add(20*time.Minute))
	for _, test := range []struct {
		name      string
		session   *contexts.Session
		after     time.Duration
		due, over bool
	}{
		// The certificate is good from an hour before it was received: its life is counted from when it was.
		{"new", long, 0, false, false},
		{"nearly half", long, 30*time.Minute - time.Second, false, false},
		{"half", long, 30 * time.Minute, true, false},
		{"not used", long, time.Hour + time.Second, true, true},
		{"nothing to gain", short, 19 * time.Minute, false, false},
		{"over", short, 20 * time.Minute, false, true},
	} {
		now := start.Add(test.after)
		if due, over := test.session.Due(now), test.session.Over(now); due != test.due || over != test.over {
			t.Errorf("%s: due %t, over %t", test.name, due, over)
		}
	}
}

// TestNoTextShowsTheKey prints a session in every way that somebody could by mistake.
func TestNoTextShowsTheKey(t *testing.T) {
	session := newAuthority(t, "c0ffee").session(t, "alice", start.Add(time.Hour))
	seed := session.Certificate().PrivateKey.(ed25519.PrivateKey).Seed()
	document, err := json.Marshal(session)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(session), fmt.Sprintf("%v %+v %#v %q", session, session, session, session), string(document)} {
		for _, key := range []string{fmt.Sprintf("%d", seed)[1:20], hex.EncodeToString(seed), fmt.Sprintf("%#v", seed[:4])[7:20]} {
			if strings.Contains(text, key) {
				t.Errorf("%q shows the key", text)
			}
		}
	}
}

func TestOtherPeoplesFilesAreNotUsed(t *testing.T) {
	dir := t.TempDir()
	store, ca := contexts.New(dir), newAuthority(t, "c0ffee")
	write(t, store, "lab", ca.session(t, "alice", start.Add(time.Hour)))
	if err := os.Chmod(filepath.Join(dir, "sessions", "lab.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := store.Session("lab")
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that a group may read: %v", err)
	}
}

func TestWithoutHome(t *testing.T) {
	store := contexts.New("")
	if config, err := store.Load(); err != nil || len(config.Contexts) != 0 {
		t.Errorf("%v, %v", config, err)
	}
	if _, err := store.Session("lab"); !errors.Is(err, contexts.ErrNoSession) {
		t.Error(err)
	}
	if err := store.Update(t.Context(), func(*contexts.Config) error { return nil }); fault.CodeOf(err) != fault.Refused {
		t.Error(err)
	}
}

func TestLockIsWaitedFor(t *testing.T) {
	store := contexts.New(t.TempDir())
	lock, err := store.LockSession(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.TryLockSession(t.Context(), "lab"); !errors.Is(err, contexts.ErrLocked) {
		t.Errorf("a lock that is held: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.LockSession(ctx, "lab"); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was interrupted: %v", err)
	}
	other, err := store.TryLockSession(t.Context(), "attic")
	if err != nil {
		t.Fatalf("another session: %v", err)
	}
	other.Release()
	var wait sync.WaitGroup
	wait.Go(func() {
		again, err := store.LockSession(t.Context(), "lab")
		if err != nil {
			t.Error(err)
			return
		}
		again.Release()
	})
	lock.Release()
	wait.Wait()
}

// changes is how many contexts each process of TestProcesses adds.
const changes = 20

// change adds contexts to a directory, one at a time.
func change(dir string) int {
	store := contexts.New(dir)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		panic(err)
	}
	for i := range changes {
		if err := store.Update(context.Background(), func(config *contexts.Config) error {
			config.Put(contexts.Context{Name: fmt.Sprintf("p%d-%d", os.Getpid(), i), CA: string(ca)})
			return nil
		}); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// TestProcesses has several processes change the contexts at once: no change is lost.
func TestProcesses(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t, "c0ffee")
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(ca.context("x").CA), 0o600); err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 3
	var wait sync.WaitGroup
	for range processes {
		command := exec.Command(executable)
		command.Env = append(os.Environ(), changeVariable+"="+dir)
		wait.Go(func() {
			if text, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
	wait.Wait()
	config, err := contexts.New(dir).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Contexts) != processes*changes {
		t.Errorf("%d contexts of %d are left", len(config.Contexts), processes*changes)
	}
}
