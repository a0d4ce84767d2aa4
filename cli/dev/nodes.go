package dev

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// MaxNodes is how many nodes a dev directory can have.
const MaxNodes = 9

// stores is how many of the nodes, the first ones, are members of the store and serve the cluster API: a fourth member would make the store slower, and no safer.
const stores = 3

// nodesName is the directory of the second node and later ones.
const nodesName = "nodes"

// peerPort is where the members of the store listen to each other, on the address of their node, if nothing else is said.
const peerPort = "7445"

// Nodes are the numbers of the nodes of a dev directory and the paths of their directories: the first node's is the dev directory itself.
func Nodes(path string) map[int]string {
	nodes := map[int]string{1: path}
	for number := 2; number <= MaxNodes; number++ {
		directory := filepath.Join(path, nodesName, strconv.Itoa(number))
		if _, err := os.Stat(filepath.Join(directory, parametersName)); err == nil {
			nodes[number] = directory
		}
	}
	return nodes
}

// Others returns the directories of the second node and later ones that there are, by their numbers.
func (d *Directory) Others() ([]*Directory, error) {
	var others []*Directory
	for number, path := range Nodes(d.Path) {
		if number == 1 {
			continue
		}
		other, err := Find(path)
		if isFault(err) {
			return nil, err
		}
		if err != nil {
			return nil, fault.Wrap(fault.Failed, err, fmt.Sprintf("cannot read the parameters of node %d in %s", number, d.Path), "")
		}
		others = append(others, other)
	}
	slices.SortFunc(others, func(a, b *Directory) int { return a.Number - b.Number })
	return others, nil
}

// numberOf is the number of the node whose directory this is.
func numberOf(state string) int {
	above, name := filepath.Split(state)
	number, err := strconv.Atoi(name)
	if err != nil || number < 2 || number > MaxNodes || filepath.Base(above) != nodesName {
		return 1
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Clean(above)), parametersName)); err != nil {
		return 1
	}
	return number
}

// whole is the dev directory that a node belongs to, for advice.
func (d *Directory) whole() string {
	if d.Number > 1 {
		return filepath.Dir(filepath.Dir(d.Path))
	}
	return d.Path
}

// Prepare makes what does not outlive the machine's run time, or `reeve dev down`.
func (d *Directory) Prepare() error {
	if err := d.makeRun(); err != nil {
		return makeFault(err, d.Path)
	}
	return d.raiseNetwork()
}

// TicketFile is the file with the ticket of a node that is not a member yet.
func (d *Directory) TicketFile() string { return filepath.Join(d.State, setup.TicketName) }

// Registers says whether the node has yet to become a member: its ticket is there.
func (d *Directory) Registers() bool {
	_, err := os.Lstat(d.TicketFile())
	return err == nil
}

// Registered removes the ticket of a node that is a member, which has no use any more.
func (d *Directory) Registered() error {
	if err := os.Remove(d.TicketFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Failed, err, "cannot remove the ticket of a node that is a member", "")
	}
	return nil
}

// HostsFile is the file that the node's role hostsfile keeps.
func (d *Directory) HostsFile(number int) string {
	if number == 1 {
		return filepath.Join(d.State, hostsName)
	}
	return filepath.Join(d.State, nodesName, strconv.Itoa(number), hostsName)
}

// Asks are the roles that a node asks for.
func Asks(number int) []string {
	if number <= stores {
		return []string{setup.Consensus, setup.Curator, setup.Hostsfile}
	}
	return []string{setup.Hostsfile}
}

// CheckAddresses refuses addresses of this machine on which further nodes of the directory could not listen.
func (d *Directory) CheckAddresses(numbers []int) error {
	if d.network != nil {
		return nil // they will have their own
	}
	for _, number := range numbers {
		if err := listens(net.JoinHostPort(loopback(number), "0")); err != nil {
			return fault.Wrap(fault.Refused, err, fmt.Sprintf("node %d would have the address %s, on which this machine does not listen", number, loopback(number)),
				"Add it to the loopback interface (`ip address add "+loopback(number)+"/8 dev lo`), or give a smaller --nodes.")
		}
	}
	return nil
}

// PeerListen is where the store's member of the node listens to the others; empty: where it does if nothing is said. Another cluster on this machine may have that
// port, and then it is any other one.
func (d *Directory) PeerListen() (string, error) {
	if d.network != nil {
		return "", nil
	}
	address, err := d.free(peerPort)
	if err != nil {
		return "", fault.Wrap(fault.Refused, err, fmt.Sprintf("the store's member of node %d has nowhere to listen to the others", d.Number), "")
	}
	if address == net.JoinHostPort(loopback(d.Number), peerPort) {
		return "", nil
	}
	return address, nil
}

// free is an address of the node on which nothing listens now: with the port that is preferred, or another one.
func (d *Directory) free(port string) (string, error) {
	if address := net.JoinHostPort(loopback(d.Number), port); listens(address) == nil {
		return address, nil
	}
	return d.any()
}

// any is an address of the node on which nothing listens now.
func (d *Directory) any() (string, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback(d.Number), "0"))
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// The ports of which a dev directory prefers one for its curators: below those that the kernel gives to whoever asks for any.
const (
	firstOwnPort = 20000
	ownPorts     = 12000
)

// chosen is an address of the node on which nothing listens now, for its parameters, which keep it. Which port is preferred depends on the dev directory: one that another
// cluster has kept, which does not run at this time, looks free as well, and both of them are to run later.
func (d *Directory) chosen() (string, error) {
	const several = 16
	sum := sha256.Sum256([]byte(d.wholeState()))
	own := binary.BigEndian.Uint32(sum[:])
	for n := range uint32(several) {
		address := net.JoinHostPort(loopback(d.Number), strconv.Itoa(int(firstOwnPort+(own%ownPorts+n)%ownPorts)))
		if listens(address) == nil {
			return address, nil
		}
	}
	return d.any()
}

func listens(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// MakeNode returns the directory of the second node or a later one, which it makes if it is not there, with the ticket by which it registers. Parameters that are there
// are kept.
func (d *Directory) MakeNode(number int, ticket string, volume string, places Places) (*Directory, error) {
	name := strconv.Itoa(number)
	node := &Directory{Path: filepath.Join(d.Path, nodesName, name), State: filepath.Join(d.State, nodesName, name), Number: number, network: d.network}
	if err := errors.Join(makeOwn(filepath.Dir(node.State)), makeOwn(node.State)); err != nil {
		return nil, makeFault(err, node.Path)
	}
	if err := node.fillNode(d, ticket, volume, places); err != nil {
		return nil, makeFault(err, node.Path)
	}
	return node, nil
}

func (d *Directory) fillNode(first *Directory, ticket, volume string, places Places) error {
	if err := d.Registered(); err != nil {
		return err
	}
	if _, err := setup.CreateOnly(d.TicketFile(), []byte(ticket+"\n"), 0o600); err != nil {
		return err
	}
	parameters, err := setup.ReadParameters(d.ParametersFile())
	if errors.Is(err, fs.ErrNotExist) {
		parameters, err = d.newNode(first, volume, places)
	}
	if err != nil {
		return err
	}
	d.Parameters = parameters
	return d.makeRun()
}

func (d *Directory) newNode(first *Directory, volume string, places Places) (*nodev1.Parameters, error) {
	hosts := filepath.Join(d.State, hostsName)
	if _, err := setup.CreateOnly(hosts, []byte(initialHosts), 0o644); err != nil {
		return nil, err
	}
	node := setup.Node{
		System: filepath.Join(d.State, "system"), Data: filepath.Join(d.State, "data"), Run: filepath.Join(places.Run, short(d.State)),
		Plugins: first.plugins(), TicketFile: d.TicketFile(), Asks: Asks(d.Number), HostsFile: hosts, LogFile: d.LogFile(),
		DebugRoles: true,
	}
	d.listen(&node)
	if d.Number <= stores {
		var err error
		if node.PeerListen, err = d.PeerListen(); err != nil {
			return nil, err
		}
		// The first node's curator has another port at each start. A node without a curator of its own, whose others all started anew, finds them by what it has kept: by these.
		if d.network == nil {
			if node.CuratorListen, err = d.chosen(); err != nil {
				return nil, fault.Wrap(fault.Refused, err, fmt.Sprintf("the curator of node %d has nowhere to listen", d.Number), "")
			}
		}
	}
	if volume == "" {
		volume = volumeOf(first.Parameters)
	}
	if volume == Fscrypt {
		if err := encrypt(&node, d.RecoveryKeyFile()); err != nil {
			return nil, err
		}
	}
	parameters, err := node.Parameters()
	if err != nil {
		return nil, err
	}
	if _, err := writeParameters(d.ParametersFile(), parameters); err != nil {
		return nil, err
	}
	// Another one may have been faster.
	return setup.ReadParameters(d.ParametersFile())
}

// plugins is the directory of the built-in plugins with which the node was made: later nodes have the same.
func (d *Directory) plugins() string {
	for _, plugin := range d.Parameters.GetPlugins() {
		return filepath.Dir(plugin.GetPath())
	}
	return ""
}
