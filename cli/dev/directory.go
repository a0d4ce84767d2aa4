package dev

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/netns"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Directory is a dev directory.
type Directory struct {
	// Path is as it was asked for, absolute.
	Path string
	// State is where it really is.
	State string
	// Parameters are those of its reeved.
	Parameters *nodev1.Parameters
	// Number is that of the node: 1 for the one that made the cluster, whose directory this is.
	Number int

	// network is that of the dev directory; nil: the nodes have loopback addresses.
	network *netns.Network
	// raised says that the node's namespace was made, and made that the parameters were, by whoever has this Directory.
	raised, made bool
}

// ParametersFile is the file with the parameters of reeved.
func (d *Directory) ParametersFile() string { return filepath.Join(d.State, parametersName) }

// LogFile is the file with the log of reeved.
func (d *Directory) LogFile() string { return filepath.Join(d.State, logName) }

// logName is its name. reeved is started with it as its standard error, and by its parameters sees to it that it does not grow for ever.
const logName = "reeved.log"

const (
	parametersName = "reeved.yaml"
	hostsName      = "hosts"
)

// Roles returns the names of the roles with which the cluster was made, or for which the node asked when it registered.
func (d *Directory) Roles() []string {
	var roles []string
	for _, role := range slices.Concat(d.Parameters.GetBootstrap().GetRoles(), d.Parameters.GetRegister().GetRoles()) {
		roles = append(roles, role.GetRole())
	}
	return roles
}

// Find returns the dev directory at a path. The error is fs.ErrNotExist if there is none, and a fault if it is a copy of another one.
func Find(path string) (*Directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	state, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if err := target.CheckCopy(state); err != nil {
		return nil, err
	}
	d := &Directory{Path: path, State: state, Number: numberOf(state)}
	if d.Parameters, err = setup.ReadParameters(d.ParametersFile()); err != nil {
		return d, err
	}
	return d, d.readNetwork()
}

// Make returns the dev directory at a path, which it makes if it is not there. What was begun before and is not complete is completed; what is
// there already is kept. The plan is only for what is made.
func Make(path string, plan Plan, places Places) (*Directory, error) {
	if err := CheckVolume(plan.Volume, os.Geteuid()); err != nil {
		return nil, err
	}
	if plan.Namespaces {
		if err := CheckNamespaces(os.Geteuid()); err != nil {
			return nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := places.checkDisk(path, plan.Again); err != nil {
		return nil, err
	}
	state, err := chooseState(path, places)
	if err != nil {
		return nil, makeFault(err, path)
	}
	d := &Directory{Path: path, State: state, Number: 1}
	if err := d.fill(plan, places); err != nil {
		return nil, makeFault(err, path)
	}
	return d, nil
}

func makeFault(err error, path string) error {
	if fault.CodeOf(err) != fault.Failed {
		return err
	}
	code := fault.Failed
	if errors.Is(err, fs.ErrPermission) {
		code = fault.Refused
	}
	next := "Give another one with --dir."
	if refusesWrites(err) {
		next = strings.TrimSpace(noWrites)
	}
	return fault.Wrap(code, err, "cannot make the dev directory "+path, next)
}

func (d *Directory) fill(plan Plan, places Places) error {
	if err := d.takesWrites(); err != nil {
		return err
	}
	if err := d.readNetwork(); err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	parameters, err := setup.ReadParameters(d.ParametersFile())
	switch {
	case err == nil:
		if err := plan.fits(parameters); err != nil {
			return err
		}
		if plan.Namespaces && d.network == nil {
			return fault.New(fault.Refused, "the cluster was made without network namespaces, and its nodes have loopback addresses",
				"Leave --netns out, or make another cluster with --dir.")
		}
	case errors.Is(err, fs.ErrNotExist):
		// A cluster that is there has an owner, whose key may rightly be elsewhere.
		owner, err := d.ownerKey()
		if err != nil {
			return err
		}
		if parameters, err = d.begin(plan, filepath.Join(places.Run, short(d.State)), owner); err != nil {
			return err
		}
	default:
		return err
	}
	d.Parameters = parameters
	// Where it cannot be remembered the cluster runs all the same.
	_ = places.keepDisk(d.Path, d.State)
	return d.makeRun()
}

// begin makes the parameters of a directory that has none. The network is part of what is decided with them: if they cannot be made it goes again, and one that was left by
// whoever was killed while making them decides nothing.
func (d *Directory) begin(plan Plan, run string, owner ed25519.PublicKey) (parameters *nodev1.Parameters, err error) {
	if plan.HostsFile != "" {
		path, err := filepath.Abs(plan.HostsFile)
		if err != nil {
			return nil, err
		}
		if err := setup.CheckHostsFile(path); err != nil {
			return nil, err
		}
	}
	switch {
	case plan.Namespaces && d.network == nil:
		err = d.makeNetwork()
	case !plan.Namespaces:
		err = d.forgetNetwork()
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !d.hasParameters() {
			err = errors.Join(err, d.forgetNetwork())
		}
	}()
	if parameters, err = plan.parameters(d, run, owner); err != nil {
		return nil, err
	}
	if plan.HostsFile == "" {
		if _, err := setup.CreateOnly(filepath.Join(d.State, hostsName), []byte(initialHosts), 0o644); err != nil {
			return nil, err
		}
	}
	if d.made, err = writeParameters(d.ParametersFile(), parameters); err != nil {
		return nil, err
	}
	// Another one may have been faster.
	return setup.ReadParameters(d.ParametersFile())
}

func (d *Directory) hasParameters() bool {
	_, err := os.Lstat(d.ParametersFile())
	return !errors.Is(err, fs.ErrNotExist)
}

// Undo takes back what a plan has decided for a directory that was made for it, and in which nothing was ever run: the next plan decides anew. The keys that were made stay.
func (d *Directory) Undo() error {
	if !d.made || target.Held(d.Path) {
		return nil
	}
	d.made = false
	if err := os.Remove(d.ParametersFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.forgetNetwork()
}

// initialHosts is what every hosts file has.
const initialHosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// ownerKey returns the public half of the owner's key, which it makes if there is none.
func (d *Directory) ownerKey() (ed25519.PublicKey, error) {
	file := filepath.Join(d.State, "owner.key")
	_, fresh, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := keyfile.Encode(fresh)
	if err != nil {
		return nil, err
	}
	if _, err := setup.CreateOnly(file, text, 0o600); err != nil {
		return nil, err
	}
	// Another one may have been faster.
	owner, err := keyfile.Read(file, "the owner key", "--owner-key")
	if err != nil {
		return nil, err
	}
	return owner.Public().(ed25519.PublicKey), nil
}

// makeRun makes the run directory, which does not outlive the machine's run time, and the link to it.
func (d *Directory) makeRun() error {
	run := d.Parameters.GetDirectories().GetRun()
	if len(run) > maxRun {
		return fault.New(fault.Failed, fmt.Sprintf("the run directory %s is longer than %d bytes", run, maxRun),
			"Set XDG_RUNTIME_DIR or TMPDIR to a shorter one.")
	}
	if err := errors.Join(makeOwn(filepath.Dir(run)), makeOwn(run)); err != nil {
		return err
	}
	if err := nameOwner(run, d.State); err != nil {
		return err
	}
	collectRuns(filepath.Dir(run))
	link := filepath.Join(d.State, "run")
	if target, err := os.Readlink(link); err == nil && target == run {
		return nil
	}
	// Made beside it and renamed, so that the link is there at any time.
	draft, err := os.MkdirTemp(d.State, ".run.*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(draft) }()
	fresh := filepath.Join(draft, "run")
	if err := os.Symlink(run, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, link)
}
