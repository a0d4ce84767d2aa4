package target_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/internal/testcluster"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestLogin(t *testing.T) {
	r := newRig(t)
	key := r.alice()
	session := r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: key, Session: time.Hour * 2})
	if session.Operator != "alice" || session.Role != "operator" || !session.Ends.Equal(r.now.Add(2*time.Hour)) {
		t.Errorf("%+v", session)
	}
	config, err := r.store.Load()
	if err != nil {
		t.Fatal(err)
	}
	lab := config.Find("lab")
	if config.Current != "lab" || lab.Address != r.Curator() || len(lab.Curators) != 1 || len(lab.Nodes) != 2 || lab.KeyFile != key {
		t.Errorf("%+v", config)
	}
	if err := list(t.Context(), r.open()); err != nil {
		t.Error(err)
	}
	// The key itself is good for logging in only.
	options := r.byAddress()
	options.OwnerKeyFile = key
	direct, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	if err := list(t.Context(), direct); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "reeve login --key FILE") {
		t.Errorf("a call by the key: %v", err)
	}
	// Somebody else's key is not let in, and hears what to ask for.
	stranger := filepath.Join(r.dir, "stranger.key")
	newKey(t, stranger)
	_, _, err = target.Login(t.Context(), r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: stranger})
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "reeve operator add NAME") {
		t.Errorf("a stranger: %v", err)
	}
	if r.session().Operator != "alice" {
		t.Error("the session was replaced by none")
	}
	// Again, by the context itself; the way by the socket is kept beside the address.
	r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	r.login(r.options(), target.LoginPlan{Name: "lab"})
	config, err = r.store.Load()
	if err != nil {
		t.Fatal(err)
	}
	if lab := config.Find("lab"); lab.Socket != r.socket || lab.Address != r.Curator() || r.session().Operator != "" || r.session().Role != "owner" {
		t.Errorf("%+v, %v", lab, r.session())
	}
}

func TestOneNameOneCluster(t *testing.T) {
	r, other := newRig(t), newRigOf(t, otherID)
	session := r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	for _, options := range []target.Options{other.bySocket(), other.byAddress()} {
		options.Contexts = r.store
		_, _, err := target.Login(t.Context(), options, target.LoginPlan{Name: "lab", KeyFile: other.ownerKey})
		if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "context lab is for another cluster, "+labID) {
			t.Error(err)
		}
	}
	if other.calls("Login") != 0 || !r.session().Same(session) {
		t.Error("the other cluster was logged in to")
	}
}

func TestRenewal(t *testing.T) {
	r := newRig(t)
	first := r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	long := r.open()
	if err := list(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if logins := r.calls("Login"); logins != 1 {
		t.Errorf("%d logins before half of the certificate's life", logins)
	}
	r.clock(31 * time.Minute)
	for range 2 {
		if err := list(t.Context(), r.open()); err != nil {
			t.Fatal(err)
		}
	}
	second := r.session()
	if logins := r.calls("Login"); logins != 2 || !second.CertificateEnds().Equal(r.now.Add(time.Hour)) || !second.Ends.Equal(first.Ends) {
		t.Errorf("%d logins, certificate until %s, session until %s", logins, second.CertificateEnds(), second.Ends)
	}
	// A command that runs on finds the new one, and renews by itself when its own certificate would have ended long ago.
	r.clock(80 * time.Minute)
	if err := list(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if logins := r.calls("Login"); logins != 3 {
		t.Errorf("%d logins", logins)
	}
	// At the end of the session there is nothing to gain, and then it is over.
	for at := 2 * time.Hour; at < 12*time.Hour; at += 40 * time.Minute {
		r.clock(at)
		if err := list(t.Context(), r.open()); err != nil {
			t.Fatalf("after %s: %v", at, err)
		}
	}
	if !r.session().CertificateEnds().Equal(first.Ends) {
		t.Errorf("the last certificate ends at %s, the session at %s", r.session().CertificateEnds(), first.Ends)
	}
	calls := r.calls("ListNodes")
	r.clock(12 * time.Hour)
	err := list(t.Context(), r.open())
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "ended at 2026-01-02T15:04:05Z. Log in again: `reeve login --name lab --key ") {
		t.Errorf("after the session: %v", err)
	}
	if r.calls("ListNodes") != calls {
		t.Error("the cluster was asked with a session that is over")
	}
}

func TestNotUsed(t *testing.T) {
	r := newRig(t)
	r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	r.clock(61 * time.Minute)
	err := list(t.Context(), r.open())
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "was not used for so long") || !strings.Contains(err.Error(), "--key "+r.ownerKey) {
		t.Error(err)
	}
}

// TestRenewalFails has nobody who renews: the certificate is good for a while yet.
func TestRenewalFails(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		r := newRig(t)
		first := r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
		if err := r.HideSigningKey(true); err != nil {
			t.Fatal(err)
		}
		r.clock(31 * time.Minute)
		cluster := r.open()
		for range 3 {
			if err := list(t.Context(), cluster); err != nil {
				t.Error(err)
			}
		}
		if tries := r.calls("Login"); tries != 2 {
			t.Errorf("%d tries", tries)
		}
		if !r.session().CertificateEnds().Equal(first.CertificateEnds()) {
			t.Error("the session has changed")
		}
		// A command that runs long tries again.
		if err := r.HideSigningKey(false); err != nil {
			t.Fatal(err)
		}
		r.clock(33 * time.Minute)
		if err := list(t.Context(), cluster); err != nil || !r.session().CertificateEnds().After(first.CertificateEnds()) {
			t.Errorf("%v; the certificate ends at %s", err, r.session().CertificateEnds())
		}
	})
	t.Run("locked", func(t *testing.T) {
		r := newRig(t)
		r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
		r.clock(31 * time.Minute)
		lock, err := r.store.LockSession(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		if err := list(t.Context(), r.open()); err != nil || r.calls("Login") != 1 {
			t.Errorf("%v, %d logins", err, r.calls("Login"))
		}
	})
	t.Run("logged out", func(t *testing.T) {
		r := newRig(t)
		r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
		cluster := r.open()
		if err := list(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		lock, err := r.store.LockSession(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		_, err = lock.Forget()
		lock.Release()
		if err != nil {
			t.Fatal(err)
		}
		r.clock(31 * time.Minute)
		if err := list(t.Context(), cluster); err != nil {
			t.Error(err)
		}
		if _, err := r.store.Session("lab"); !errors.Is(err, contexts.ErrNoSession) {
			t.Errorf("the session has come back: %v", err)
		}
		err = list(t.Context(), r.open())
		if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "context lab has no session. Log in: `reeve login --name lab") {
			t.Error(err)
		}
	})
}

// shorten gives the session of a context another certificate, of the owner, that is good for some seconds.
func (r *rig) shorten(name string, seconds uint32) {
	r.t.Helper()
	certified, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := r.owner.Login(r.t.Context(), &clusterv1.LoginRequest{PublicKey: certified, LifetimeSeconds: seconds})
	if err != nil {
		r.t.Fatal(err)
	}
	var chain []*x509.Certificate
	for _, der := range response.GetCertificate() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			r.t.Fatal(err)
		}
		chain = append(chain, certificate)
	}
	session, err := contexts.NewSession(key, chain, "owner", r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	lock, err := r.store.LockSession(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer lock.Release()
	if err := lock.Write(session); err != nil {
		r.t.Fatal(err)
	}
}

// TestLongWatch watches a node for longer than the certificate lasts with which it began.
func TestLongWatch(t *testing.T) {
	r := newRig(t)
	r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	r.shorten("lab", 80)
	// Half of the certificate's life is over in a moment, and is as soon as the node is watched.
	const shortly, past = 39900 * time.Millisecond, 40100 * time.Millisecond
	if err := r.SetClock(testcluster.Began.Add(shortly)); err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	clock.Store(int64(shortly))
	options := r.options()
	options.Now = func() time.Time { return testcluster.Began.Add(time.Duration(clock.Load())) }
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := 0
	err = cluster.WatchNode(ctx, nodeA, func(*clusterv1.Node) {
		clock.Store(int64(past))
		// The answer of another stream, by the renewed certificate.
		if seen++; r.calls("Login") == 3 {
			cancel()
		}
	}, func(err error) { t.Errorf("contact is lost: %v", err) })
	if !errors.Is(err, context.Canceled) || r.calls("Login") != 3 || r.calls("WatchNode") < 2 {
		t.Errorf("%v; %d logins, %d streams, %d answers", err, r.calls("Login"), r.calls("WatchNode"), seen)
	}
}

// callVariable makes this program one that makes a call by the current context of a directory.
const callVariable = "CALL_BY_CONTEXTS"

// callAt is the time of such a program, after testcluster.Began.
const callAt = 31 * time.Minute

func callFromOutside(dir string) int {
	ctx := context.Background()
	cluster, err := target.Open(ctx, target.Options{
		Contexts: contexts.New(dir), Context: "lab", Now: func() time.Time { return testcluster.Began.Add(callAt) },
	})
	if err == nil {
		err = errors.Join(list(ctx, cluster), cluster.Close())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestProcessesRenewAtOnce has several processes find the certificate past half of its life: all do their work, and one renews it.
func TestProcessesRenewAtOnce(t *testing.T) {
	r := newRig(t)
	first := r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	r.clock(callAt)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 4
	var wait sync.WaitGroup
	for range processes {
		command := exec.Command(executable)
		command.Env = append(os.Environ(), callVariable+"="+filepath.Join(r.dir, "config"))
		wait.Go(func() {
			if text, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
	wait.Wait()
	if calls, logins := r.calls("ListNodes"), r.calls("Login"); calls != processes+1 || logins != 2 {
		t.Errorf("%d calls, %d logins", calls, logins)
	}
	if !r.session().CertificateEnds().After(first.CertificateEnds()) {
		t.Error("the certificate is the former one")
	}
	if err := list(t.Context(), r.open()); err != nil {
		t.Error(err)
	}
}
