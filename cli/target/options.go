package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
)

// DefaultDirectory is the dev directory that is meant if nothing else is said: the one that `make run` uses.
const DefaultDirectory = "./var/dev"

// HostSocket is the local socket of the node that is installed on a machine.
const HostSocket = "/run/reeve/node.sock"

// Options say which cluster is meant and who asks. What is named first here is meant first: Dir, Socket or Address, of which only one may be given;
// then Context; then UsualContext; then DefaultDirectory, if it is there, which must belong to the caller or root; then the current context; then
// HostSocket, if it is there.
type Options struct {
	// Dir is a dev directory.
	Dir string
	// Socket is the local socket of a node.
	Socket string
	// Address is the host:port of a curator.
	Address string
	// CAFile holds the certificates of the cluster CA, PEM. Needed with Address.
	CAFile string
	// OwnerKeyFile holds the owner's Ed25519 private key, PKCS #8 in PEM: with it the caller is the owner and no session is used. Needed with
	// Address; with Dir the default is D/owner.key.
	OwnerKeyFile string
	// Context is the name of a context, as the command line has it.
	Context string
	// UsualContext is the name of a context, as the environment has it (REEVE_CONTEXT).
	UsualContext string
	// Contexts are where contexts are kept; nil: there are none.
	Contexts *contexts.Store
	// HostSocket is in place of the constant of that name; empty: that one.
	HostSocket string
	// Now tells when certificates end; nil: time.Now.
	Now func() time.Time
	// Notice is told, in a sentence, that DefaultDirectory is meant where another cluster could be; nil: nobody is.
	Notice func(string)
}

// way is how a cluster is reached. At most one of dir, socket, address and context is set.
type way struct {
	dir, socket, address string
	context              *contexts.Context
	// caFile is for address only.
	caFile string
	// keyFile is the key by which the caller proves itself; empty: none, or the session of the context.
	keyFile string
}

// local is the socket of the node that the way names; empty: it names none.
func (w way) local() string {
	switch {
	case w.dir != "":
		return filepath.Join(w.dir, "run", "node.sock")
	case w.context != nil:
		return w.context.Socket
	}
	return w.socket
}

// node is the local node, for people.
func (w way) node() string {
	if w.dir != "" {
		return "the node in " + w.dir
	}
	return "the node at " + w.local()
}

// flags are those with which another command takes the same way.
func (w way) flags() string {
	switch {
	case w.dir != "":
		return "--dir " + w.dir
	case w.socket != "":
		return "--socket " + w.socket
	case w.context != nil:
		return "--context " + w.context.Name
	default:
		return "--address " + w.address + " --ca " + w.caFile
	}
}

// resolve finds out which cluster is meant.
func (o Options) resolve() (way, error) {
	if err := o.check(); err != nil {
		return way{}, err
	}
	if o.Contexts == nil {
		o.Contexts = contexts.New("")
	}
	if o.HostSocket == "" {
		o.HostSocket = HostSocket
	}
	switch {
	case o.Dir != "":
		return o.directory(o.Dir)
	case o.Socket != "":
		return way{socket: o.Socket, keyFile: o.OwnerKeyFile}, nil
	case o.Address != "":
		return way{address: o.Address, caFile: o.CAFile, keyFile: o.OwnerKeyFile}, nil
	case o.Context != "":
		return o.named(o.Context, "Run `reeve context list` to see the contexts.")
	case o.UsualContext != "":
		return o.named(o.UsualContext, "REEVE_CONTEXT names it; `reeve context list` shows the contexts.")
	}
	if info, err := os.Stat(DefaultDirectory); err == nil {
		if err := checkOwner(info); err != nil {
			return way{}, err
		}
		w, err := o.directory(DefaultDirectory)
		if err == nil {
			o.noticeDefault()
		}
		return w, err
	}
	config, err := o.Contexts.Load()
	if err != nil {
		return way{}, err
	}
	if config.Current != "" {
		return way{context: config.Find(config.Current), keyFile: o.OwnerKeyFile}, nil
	}
	if _, err := os.Stat(o.HostSocket); err == nil {
		return way{socket: o.HostSocket, keyFile: o.OwnerKeyFile}, nil
	}
	next := "`reeve dev up` makes a cluster; `reeve login` with --dir, --socket, or --address and --ca keeps how one is reached."
	if len(config.Contexts) > 0 {
		next = "`reeve context use NAME` chooses one; `reeve context list` shows them."
	}
	return way{}, fault.New(fault.Usage, "no cluster is named, there is no "+DefaultDirectory+" and no current context, and no node runs on this machine", next)
}

// noticeDefault says that the default directory is meant, where the caller may have thought of another cluster.
func (o Options) noticeDefault() {
	if o.Notice == nil {
		return
	}
	if config, err := o.Contexts.Load(); err == nil && config.Current != "" {
		o.Notice("The cluster of " + DefaultDirectory + " is meant, since that directory is here, and not the current context " + config.Current +
			": give --context " + config.Current + " for that one, or --dir " + DefaultDirectory + ".")
	} else if _, err := os.Stat(o.HostSocket); err == nil {
		o.Notice("The cluster of " + DefaultDirectory + " is meant, since that directory is here, and not the node that is installed on this machine: give --socket " +
			o.HostSocket + " for that one, or --dir " + DefaultDirectory + ".")
	}
}

// KeyFile returns the file with the caller's own key: the one that the options name, or the one with which the context that they mean was last logged in. Empty: none is known.
func (o Options) KeyFile() (string, error) {
	if o.OwnerKeyFile != "" {
		return o.OwnerKeyFile, nil
	}
	w, err := o.resolve()
	if err != nil || w.keyFile != "" || w.context == nil {
		return w.keyFile, err
	}
	return w.context.KeyFile, nil
}

// checkOwner refuses a default directory that belongs to neither the caller nor root. Its owner may answer in place of the node there, and wherever somebody
// else may make directories it would come before the cluster that the caller has chosen.
func checkOwner(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return fault.New(fault.Refused, fmt.Sprintf("the dev directory %s belongs to user %d, who can answer for the node there, and it is not used unless it is named", DefaultDirectory, owner.Uid),
		"Give --dir "+DefaultDirectory+" if it is meant, or say which cluster is with --context, --socket or --address.")
}

// check refuses options that contradict each other.
func (o Options) check() error {
	var named []string
	for _, option := range []struct{ flag, value string }{
		{"--dir", o.Dir}, {"--socket", o.Socket}, {"--address", o.Address}, {"--context", o.Context},
	} {
		if option.value != "" {
			named = append(named, option.flag)
		}
	}
	switch {
	case len(named) > 1:
		return fault.New(fault.Usage, named[0]+" and "+named[1]+" name two clusters", "Give one of them.")
	case o.Address != "" && (o.CAFile == "" || o.OwnerKeyFile == ""):
		return fault.New(fault.Usage, "--address alone does not prove who is there",
			"Give --ca and --owner-key too, or log in once: `reeve login --address "+o.Address+" --ca FILE --key FILE`.")
	case o.Address == "" && o.CAFile != "":
		return fault.New(fault.Usage, "--ca is given without --address", "Give the address of a curator, or leave it out.")
	}
	return nil
}

func (o Options) directory(dir string) (way, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return way{}, fault.New(fault.NotFound, "there is no dev directory "+dir, "Run `reeve dev up --dir "+dir+"` to make a cluster there.")
	} else if err != nil {
		return way{}, fault.Wrap(fault.Refused, err, "cannot use the dev directory", "Run reeve as the user who made it.")
	}
	keyFile := o.OwnerKeyFile
	if keyFile == "" {
		keyFile = ownerKey(dir)
	}
	return way{dir: dir, keyFile: keyFile}, nil
}

// nodesName is the directory below a dev directory with those of its second node and later ones.
const nodesName = "nodes"

// ownerKey is the file with the owner's key of a dev directory. The second node and later ones, in D/nodes/N, have that of the first one.
func ownerKey(dir string) string {
	file := filepath.Join(dir, "owner.key")
	if absolute, err := filepath.Abs(dir); err == nil && filepath.Base(filepath.Dir(absolute)) == nodesName {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(filepath.Dir(filepath.Dir(absolute)), "owner.key")
		}
	}
	return file
}

func (o Options) named(name, next string) (way, error) {
	config, err := o.Contexts.Load()
	if err != nil {
		return way{}, err
	}
	found := config.Find(name)
	if found == nil {
		return way{}, fault.New(fault.NotFound, "there is no context "+name, next)
	}
	return way{context: found, keyFile: o.OwnerKeyFile}, nil
}
