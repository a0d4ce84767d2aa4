package setup

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/proto/hostfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Where the parts of an installed node are, unless its operator wants them elsewhere. The service of the package expects them there.
const (
	DefaultFile  = "/etc/reeve/node.yaml"
	DefaultState = "/var/lib/reeve"
	DefaultRun   = "/run/reeve"
)

// The ports that are taken where no address to listen on is given.
const (
	curatorPort = "7443"
	apiPort     = "7444"
)

// maxRun is the longest path of a run directory that reeved accepts: paths of sockets end at 107 bytes.
const maxRun = 48

// Plan is what an operator wants of a new node.
type Plan struct {
	// File is where to write the parameters.
	File string
	// State is the directory of system/ and data/, Run that of sockets.
	State, Run string
	// Plugins is the directory with the executables of the built-in plugins.
	Plugins string
	// OwnerKeyFile holds the owner's private key, which is made if there is none. Empty: OwnerKey is given.
	OwnerKeyFile string
	// OwnerKey is the owner's public key. Nil: OwnerKeyFile is given.
	OwnerKey ed25519.PublicKey
	// Address is how other machines reach this one, also when it has other addresses. Empty: those that the machine has at the time, of Interfaces.
	Address string
	// Interfaces are names of interfaces and networks; none: the interfaces by which default routes leave.
	Interfaces []string
	// CuratorListen and APIListen are host:port of the cluster API and of the node's own; empty: ports 7443 and 7444 of Address, or of all addresses.
	CuratorListen, APIListen string
	// MetricsListen, LogFile and HostsFile are those of Node.
	MetricsListen, LogFile, HostsFile string
	// Volume, Seal and RecoveryRecipient are those of Node; ParseVolume and ParseSeal make the first two of what a person gives.
	Volume            *nodev1.Volume
	Seal              *nodev1.Seal
	RecoveryRecipient string
	// Ticket is the text of the ticket with which the machine registers with a cluster; empty: it makes one. It is a secret.
	Ticket string
	// Asks are the roles that a machine asks for which registers, Labels the labels.
	Asks   []string
	Labels map[string]string
	// DryRun makes nothing.
	DryRun bool
}

// ticketFile is the file beside the parameters in which the ticket is kept.
func (p Plan) ticketFile() string { return filepath.Join(filepath.Dir(p.File), TicketName) }

// TicketName is the name of the file with the ticket, beside the parameters.
const TicketName = "ticket"

// Result is what was made, or with DryRun would be.
type Result struct {
	Parameters *nodev1.Parameters
	// Document is the file of the parameters. In a dry run it has no owner key if there is none yet.
	Document []byte
	// OwnerKeyMade says that the owner's key is new.
	OwnerKeyMade bool
	// Made is the files and directories that were not there before, in the order in which they were made.
	Made []string
	// Addresses are those of the machine: first those by which others reach it, unless the plan names one, then the others with the reasons.
	Addresses []address.Address
	// Continues says that State is that of a node which has a cluster already: it goes on as that node, and reads nothing of the owner and the
	// first roles.
	Continues bool
}

const head = `# The parameters of this machine's reeved. ` + "`reeve init`" + ` wrote them; from now on they are yours.
# The message reeve.node.v1.Parameters says what may be in here. A change takes effect when reeved starts.
`

// Make makes what the plan asks for. What was begun before and is not complete is completed. The fault is Refused if there are parameters already: they
// are never changed.
func Make(plan Plan) (*Result, error) {
	plan, err := plan.complete()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(plan.File); err == nil {
		return nil, fault.New(fault.Refused, plan.File+" is there already, and is never overwritten",
			"Edit it, or move it away and run the command again.")
	}
	result := &Result{}
	_, err = os.Lstat(filepath.Join(plan.State, "system", "configuration.json"))
	result.Continues = err == nil
	// Everything that can be wrong is found before anything is made.
	if _, err := plan.node().Parameters(); err != nil {
		return nil, err
	}
	if err := plan.takeAddress(result); err != nil {
		return nil, err
	}
	// A directory of the node is made below.
	if filepath.Dir(plan.HostsFile) != plan.State {
		if err := CheckHostsFile(plan.HostsFile); err != nil {
			return nil, err
		}
	}
	if err := plan.takeOwner(result); err != nil {
		return nil, err
	}
	if result.Parameters, err = plan.node().Parameters(); err != nil {
		return nil, err
	}
	if result.Document, err = Encode(head, result.Parameters); err != nil {
		return nil, err
	}
	return result, plan.write(result)
}

// CheckHostsFile refuses a hosts file that the node, run by the caller's user, could not keep: the cluster would be made, and its role hostsfile never Ready. An
// empty path is none.
func CheckHostsFile(path string) error {
	if path == "" {
		return nil
	}
	if err := hostfile.Check(path); err != nil {
		return fault.Wrap(fault.Refused, err, "the role hostsfile could not keep the hosts file", "Give another file with --hosts-file, or mend this one first.")
	}
	return nil
}

// complete fills in what the plan leaves open, and refuses what reeved would.
func (p Plan) complete() (Plan, error) {
	switch {
	case p.Ticket != "" && (p.OwnerKeyFile != "" || p.OwnerKey != nil):
		return p, fault.New(fault.Usage, "a cluster that there is has an owner already", "Leave out --owner-key and --owner-public-key, or --join to make a cluster.")
	case p.Ticket == "" && (len(p.Asks) > 0 || len(p.Labels) > 0):
		return p, fault.New(fault.Usage, "the first node of a cluster has nobody to ask for roles and labels", "Leave out --role and --label, or give --join.")
	case p.Ticket == "" && (p.OwnerKeyFile == "") == (p.OwnerKey == nil):
		return p, fault.New(fault.Usage, "a cluster has one owner, who is known by a key",
			"Give --owner-key FILE, in which a key is made if there is none, or --owner-public-key if the owner has one elsewhere; --join FILE for a cluster that there is.")
	}
	for name, path := range map[string]*string{
		"the parameters": &p.File, "the state": &p.State, "the sockets": &p.Run, "the plugins": &p.Plugins, "the owner key": &p.OwnerKeyFile,
		"the hosts file": &p.HostsFile, "the log": &p.LogFile,
	} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return p, fault.Wrap(fault.Usage, err, "cannot find the absolute path of "+name, "Give an absolute one.")
		}
		*path = absolute
	}
	if len(p.Run) > maxRun {
		return p, fault.New(fault.Usage, fmt.Sprintf("the run directory %s is longer than %d bytes", p.Run, maxRun), "Give a shorter one with --run.")
	}
	if p.Address != "" {
		if len(p.Interfaces) > 0 {
			return p, fault.New(fault.Usage, "--address and --interface both say how others reach this machine", "Give one of them.")
		}
		if address, err := netip.ParseAddr(p.Address); err != nil || address.IsUnspecified() || address.Zone() != "" {
			return p, fault.New(fault.Usage, fmt.Sprintf("--address %q is no IP address by which this machine could be reached", p.Address),
				"Give one, such as 192.0.2.10.")
		}
	}
	if err := p.listen(); err != nil {
		return p, err
	}
	return p, nil
}

// listen fills in where the node listens: on all addresses that it has at the time, unless the operator names one.
func (p *Plan) listen() error {
	if p.CuratorListen == "" {
		p.CuratorListen = net.JoinHostPort(p.Address, curatorPort)
	}
	if p.APIListen == "" {
		p.APIListen = net.JoinHostPort(p.Address, apiPort)
	}
	for _, given := range []struct {
		flag, listen string
		all          bool
	}{
		{"--curator-listen", p.CuratorListen, true}, {"--api-listen", p.APIListen, true}, {"--metrics-listen", p.MetricsListen, false},
	} {
		if given.listen == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(given.listen); err != nil || host == "" && !given.all {
			return fault.New(fault.Usage, fmt.Sprintf("%s %q is not host:port", given.flag, given.listen), "Give one, such as 192.0.2.10:7443.")
		}
	}
	return nil
}

// takeAddress finds by which addresses others will reach the node.
func (p Plan) takeAddress(result *Result) (err error) {
	if result.Addresses, err = address.Here(p.Interfaces); err != nil {
		return fault.Wrap(fault.Failed, err, "cannot read the addresses of this machine", "")
	}
	return nil
}

func (p Plan) node() Node {
	n := Node{
		System: filepath.Join(p.State, "system"), Data: filepath.Join(p.State, "data"), Run: p.Run, Plugins: p.Plugins, Owner: p.OwnerKey,
		APIListen: p.APIListen, CuratorListen: p.CuratorListen, MetricsListen: p.MetricsListen, LogFile: p.LogFile, HostsFile: p.HostsFile,
		Volume: p.Volume, Seal: p.Seal, RecoveryRecipient: p.RecoveryRecipient,
	}
	n.Interfaces = p.Interfaces
	if p.Address != "" {
		n.Addresses = []string{p.Address}
	}
	if p.Ticket != "" {
		n.TicketFile, n.Asks, n.Labels = p.ticketFile(), p.Asks, p.Labels
	}
	return n
}

// takeOwner finds the owner's public key, and makes a key if there is none.
func (p *Plan) takeOwner(result *Result) error {
	if p.OwnerKeyFile == "" {
		return nil
	}
	_, err := os.Lstat(p.OwnerKeyFile)
	switch {
	case err == nil:
		private, err := keyfile.Read(p.OwnerKeyFile, "the owner key", "--owner-key")
		if err != nil {
			return err
		}
		p.OwnerKey = private.Public().(ed25519.PublicKey)
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return pathFault(err, "cannot read the owner key")
	}
	result.OwnerKeyMade = true
	result.Made = append(result.Made, p.OwnerKeyFile)
	if p.DryRun {
		return nil
	}
	p.OwnerKey, err = keyfile.Create(p.OwnerKeyFile)
	return err
}

// write makes the directories and, last, the parameters: while they are missing the node is not set up.
func (p Plan) write(result *Result) error {
	// As root every role has a user ID of its own, and has to pass through to its directories; nobody else has any business in there.
	shared := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		shared = 0o711
	}
	for _, directory := range []struct {
		path string
		mode fs.FileMode
	}{
		{filepath.Dir(p.File), 0o755},
		{p.State, shared},
		{filepath.Join(p.State, "system"), 0o700},
		{filepath.Join(p.State, "data"), shared},
		{p.Run, shared},
	} {
		made, err := p.directory(directory.path, directory.mode)
		if err != nil {
			return pathFault(err, "cannot make a directory of the node")
		}
		if made {
			result.Made = append(result.Made, directory.path)
		}
	}
	if p.Ticket != "" {
		// Before the parameters, which name it.
		result.Made = append(result.Made, p.ticketFile())
		if err := p.keepTicket(); err != nil {
			return err
		}
	}
	result.Made = append(result.Made, p.File)
	if p.DryRun {
		return nil
	}
	made, err := CreateOnly(p.File, result.Document, 0o644)
	if err != nil {
		return pathFault(err, "cannot write the parameters")
	}
	if !made {
		return fault.New(fault.Refused, "somebody else made "+p.File+" meanwhile, and init overwrites nothing", "See who set up this machine.")
	}
	return nil
}

// keepTicket writes the ticket where only root, or who runs the node, reads it. One of an earlier try, which got no parameters, is replaced.
func (p Plan) keepTicket() error {
	if p.DryRun {
		return nil
	}
	file := p.ticketFile()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathFault(err, "cannot replace the ticket of an earlier try")
	}
	made, err := CreateOnly(file, []byte(p.Ticket+"\n"), 0o600)
	if err != nil {
		return pathFault(err, "cannot keep the ticket")
	}
	if !made {
		return fault.New(fault.Refused, "somebody else made "+file+" meanwhile, and init overwrites nothing", "See who set up this machine.")
	}
	return nil
}

func (p Plan) directory(path string, mode fs.FileMode) (made bool, err error) {
	if !p.DryRun {
		return makeDirectory(path, mode)
	}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func pathFault(err error, what string) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fault.Wrap(fault.Refused, err, what, "Run reeve as root, or give places of your own with --file, --state and --run.")
	}
	return fault.Wrap(fault.Failed, err, what, "")
}
