package target

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"path/filepath"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// LoginPlan is what a login is to do.
type LoginPlan struct {
	// Name is the context that keeps the session. Empty: the one that the options name, else the name of the dev directory, else DefaultContext.
	Name string
	// KeyFile holds the key to prove: the owner's or an operator's. Empty: Options.OwnerKeyFile, else that of the dev directory, else the one
	// with which the context was last logged in.
	KeyFile string
	// Session is how long the session is to last; 0: as long as the cluster gives by itself.
	Session time.Duration
}

// DefaultContext is the name of a context for which there is no better one.
const DefaultContext = "default"

// Login proves a key to a cluster, and keeps the certificate that it gets and how the cluster was reached in a context, which becomes the
// current one. It returns the context and its session.
func Login(ctx context.Context, options Options, plan LoginPlan) (*contexts.Context, *contexts.Session, error) {
	w, err := loginWay(&options, plan)
	if err != nil {
		return nil, nil, err
	}
	entry, err := newEntry(options.Contexts, w, plan.Name)
	if err != nil {
		return nil, nil, err
	}
	// Who logs in proves a key, whatever session there is.
	t, err := open(ctx, options, w)
	if err != nil {
		return nil, nil, err
	}
	session, err := t.logIn(ctx, entry, plan.Session)
	return entry, session, errors.Join(err, t.Close())
}

// loginWay finds out which cluster is meant, and by which key.
func loginWay(options *Options, plan LoginPlan) (way, error) {
	if plan.KeyFile != "" && options.OwnerKeyFile != "" {
		return way{}, fault.New(fault.Usage, "--key and --owner-key both name the key to prove", "Give one of them.")
	}
	if plan.Name != "" && !identity.ValidName(plan.Name) {
		return way{}, fault.New(fault.Usage, "no context can be called "+plan.Name, "A name has 1 to 32 of a-z, 0-9 and -, and begins with a letter.")
	}
	if options.OwnerKeyFile == "" {
		options.OwnerKeyFile = plan.KeyFile
	}
	if plan.Name != "" && options.Dir == "" && options.Socket == "" && options.Address == "" {
		if options.Context != "" && options.Context != plan.Name {
			return way{}, fault.New(fault.Usage, "--name and --context name two contexts", "Give one of them.")
		}
		options.Context = plan.Name
	}
	w, err := options.resolve()
	if fault.CodeOf(err) == fault.NotFound && plan.Name != "" && options.Context == plan.Name {
		return w, fault.New(fault.NotFound, "there is no context "+plan.Name+" yet, and no other way to a cluster is given",
			"Give one with --dir, --socket, or --address and --ca.")
	}
	if err != nil {
		return w, err
	}
	if w.keyFile == "" && w.context != nil {
		w.keyFile = w.context.KeyFile
	}
	if w.keyFile == "" {
		return w, fault.New(fault.Usage, "nothing proves who logs in", "Give the file with your key: --key FILE.")
	}
	return w, nil
}

// newEntry is the context as the way makes it, as far as that is known before the cluster is asked.
func newEntry(store *contexts.Store, w way, name string) (*contexts.Context, error) {
	entry := &contexts.Context{Name: name}
	if w.context != nil {
		*entry = *w.context
	} else if name == "" {
		entry.Name = DefaultContext
		if dir, err := filepath.Abs(w.dir); err == nil && w.dir != "" && identity.ValidName(filepath.Base(dir)) {
			entry.Name = filepath.Base(dir)
		}
	}
	config, err := store.Load()
	if err != nil {
		return nil, err
	}
	if there := config.Find(entry.Name); there != nil && w.context == nil {
		*entry = *there
	}
	for _, set := range []struct {
		to   *string
		from string
	}{{&entry.Socket, w.local()}, {&entry.KeyFile, w.keyFile}} {
		if set.from == "" {
			continue
		}
		// What JSON cannot hold is asked for the next time.
		if path, err := filepath.Abs(set.from); err == nil && utf8.ValidString(path) {
			*set.to = path
		}
	}
	if w.address != "" {
		entry.Address = w.address
	}
	return entry, nil
}

func (t *Target) logIn(ctx context.Context, entry *contexts.Context, length time.Duration) (*contexts.Session, error) {
	key, err := keyfile.Read(t.way.keyFile, "the key", "--key")
	if err != nil {
		return nil, err
	}
	if err := t.connectCurators(ctx); err != nil {
		return nil, err
	}
	if there := entry.ClusterID(); there != "" && identity.TrustDomain(there) != t.trust.domain {
		return nil, anotherCluster(entry.Name, there)
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	session, err := t.issue(bounded, t.curators, length)
	if err != nil {
		public := keyfile.Text(key.Public().(ed25519.PublicKey))
		var advised *fault.Advised
		if errors.As(err, &advised) {
			err = advised.Err
		}
		return nil, fault.FromRPC(loginAdvice(public).to(err), "the cluster does not let the holder of "+t.way.keyFile+" in", "")
	}
	entry.CA = contexts.EncodeCertificates(t.trust.roots)
	t.lookAround(ctx, entry, session)
	return session, keepLogin(ctx, t.contexts, *entry, session)
}

// loginAdvice is for somebody whose key the cluster does not know.
func loginAdvice(public string) advice {
	return func(code codes.Code) string {
		switch code {
		case codes.PermissionDenied, codes.Unauthenticated:
			return "If you are to be an operator, an owner adds you: `reeve operator add NAME --role ROLE --public-key " + public + "`."
		}
		return ""
	}
}

func anotherCluster(name, id string) error {
	return fault.New(fault.Refused, "context "+name+" is for another cluster, "+id,
		"Give another name with --name, or run `reeve context remove "+name+"` first.")
}

// lookAround learns with the new session where the nodes and curators are. Without an answer the context has the way by which the login came.
func (t *Target) lookAround(ctx context.Context, entry *contexts.Context, session *contexts.Session) {
	if t.known == nil {
		t.known = newKnown(entry)
	}
	if t.local != nil {
		t.known.setCurators(t.Curators())
	}
	defer t.known.into(entry)
	shown := *t.trust
	shown.proof = func() (*tls.Certificate, error) { return session.Certificate(), nil }
	conn, err := t.dialCurators(t.found, &shown, keyAdvice)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// The answer goes by the interceptor of what is known.
	_, _ = clusterv1.NewManagementServiceClient(conn).ListNodes(ctx, &clusterv1.ListNodesRequest{Limit: nodesPerPage})
}

// keepLogin keeps a context and its session, and makes it the current one.
func keepLogin(ctx context.Context, store *contexts.Store, entry contexts.Context, session *contexts.Session) error {
	lock, err := store.LockSession(ctx, entry.Name)
	if err != nil {
		return err
	}
	defer lock.Release()
	err = store.Update(ctx, func(config *contexts.Config) error {
		// Somebody may have made one of this name meanwhile.
		if there := config.Find(entry.Name); there != nil && there.ClusterID() != entry.ClusterID() {
			return anotherCluster(entry.Name, there.ClusterID())
		}
		config.Put(entry)
		config.Current = entry.Name
		return nil
	})
	if err != nil {
		return err
	}
	return lock.Write(session)
}
