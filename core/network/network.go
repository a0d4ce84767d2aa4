package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the room needs.
type Config struct {
	Log hclog.Logger
	// Addresses are the node's addresses as the parameters name them; empty: those of its interfaces.
	Addresses []string
	// Interfaces are the interfaces and networks of which the addresses are, as the parameters name them; empty: those of the default route.
	Interfaces []string
	// Kept is the file that keeps the first address; empty: none does.
	Kept string
	// Peers are the machines on which other nodes may be, as the parameters name them, and KeptPeers is the file that keeps those of SetPeers; empty: none does.
	Peers     []string
	KeptPeers string
	// Now is the time; nil: time.Now.
	Now func() time.Time
}

// Room watches the node's addresses.
type Room struct {
	config    Config
	addresses event.Value[[]string]
	peers     event.Value[[]string]
	problem   event.Value[string]
	// setting is held while the peers change, so that the file and the value are of the same call.
	setting sync.Mutex
	// first is the first address. It is Run's.
	first string
	// away is when the first address was first missed while there were others; zero: it is there, or there are none. It is Run's.
	away time.Time
	// since is when the present problem began; zero: there is none. It is Run's.
	since time.Time
}

// New returns the room. It does not watch before Run.
func New(config Config) *Room {
	if config.Now == nil {
		config.Now = time.Now
	}
	r := &Room{config: config}
	r.peers.Set(withPeers(config.Peers, r.readPeers()))
	return r
}

// Addresses is the addresses of the node, the preferred one first. It holds nothing before there is one.
func (r *Room) Addresses() *event.Value[[]string] { return &r.addresses }

// Problem is what keeps others, or the machine itself, from reaching the node, and what to do about it; "": nothing, or the addresses are not known yet.
func (r *Room) Problem() *event.Value[string] { return &r.problem }

// Run watches until the context ends. It returns nil: whatever the kernel refuses or drops, it looks again.
func (r *Room) Run(ctx context.Context) error {
	if len(r.config.Addresses) > 0 {
		r.addresses.Set(r.config.Addresses)
		<-ctx.Done()
		return nil
	}
	r.readFirst()
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = settle, 10*time.Second
	for {
		began := time.Now()
		err := r.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			retry.Reset()
		}
		pause := retry.NextBackOff()
		r.config.Log.Debug("the watch of addresses is begun again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// settle is how long the room waits for further changes before it looks: a routing daemon changes thousands of routes at once.
const settle = 100 * time.Millisecond

// lasts is how long a problem must last before it is told: a cable that is plugged in again, or a lease that is renewed, is none.
const lasts = 2 * time.Second

// returns is how long the first address may be away: an interface gets one of IPv6 at once, and waits for that of DHCPv4.
const returns = time.Minute

// watch follows the kernel's interfaces, addresses and routes until something fails.
func (r *Room) watch(ctx context.Context) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("network: watch addresses and routes: %w", err)
	}
	changes, failed := make(chan struct{}, 1), make(chan error, 1)
	var receiving sync.WaitGroup
	receiving.Go(func() { failed <- receive(socket, changes) })
	defer receiving.Wait()
	defer socket.Close()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return fmt.Errorf("network: the kernel's watch ended: %w", err)
		case <-changes:
			look.Reset(settle)
		case <-look.C:
			again, err := r.look()
			switch {
			case errors.Is(err, address.ErrChanging):
				look.Reset(settle)
			case err != nil:
				return err
			case again > 0:
				look.Reset(again)
			}
		}
	}
}

// receive tells of changes until the socket fails or is closed. What they are is looked up later, so a burst of routes that overflows the socket's buffer is one
// more change.
func receive(socket *nl.NetlinkSocket, changes chan<- struct{}) error {
	for {
		if _, _, err := socket.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}

// look publishes the addresses if they have changed, and returns in what time to look again though nothing changes; 0: not at all. While the machine has none, the former ones stay published.
func (r *Room) look() (again time.Duration, err error) {
	all, err := address.Here(r.config.Interfaces)
	if err != nil {
		return 0, err
	}
	list, again := r.prefer(address.Chosen(all))
	if settles := r.tell(problemOf(all, list)); settles > 0 && (again == 0 || settles < again) {
		again = settles
	}
	if current, _ := r.addresses.Get(); len(list) > 0 && !slices.Equal(list, current) {
		r.config.Log.Info("addresses", "addresses", list)
		r.addresses.Set(list)
	}
	return again, nil
}

// tell publishes a problem if it is another one than before. One that begins is published when it has lasted for a while; again is what is left of that.
func (r *Room) tell(problem string) (again time.Duration) {
	last, _ := r.problem.Get()
	switch {
	case problem == "":
		r.since = time.Time{}
	case last == "" && r.since.IsZero():
		r.since = r.config.Now()
		return lasts
	case last == "":
		if again = r.since.Add(lasts).Sub(r.config.Now()); again > 0 {
			return again
		}
	}
	if last == problem {
		return 0
	}
	if problem != "" {
		r.config.Log.Warn(problem)
	}
	r.problem.Set(problem)
	return 0
}

// problemOf says what is wrong where the machine has some addresses, of which others are told the chosen ones.
func problemOf(all []address.Address, chosen []string) string {
	var problems []string
	if !address.ReachesItself(all) {
		problems = append(problems, "the machine has no loopback address, 127.0.0.1 or ::1, at which the node reaches its own curator: `ip link set lo up`, and if lo is up `ip address add 127.0.0.1/8 dev lo`")
	}
	if len(chosen) == 0 {
		problems = append(problems, "the node has no address now by which others could reach it; it waits for one. `reeve doctor` lists the addresses of the machine: network.interfaces in the parameters names others")
	}
	return strings.Join(problems, "; ")
}

// prefer puts the first address first. It stays the first one for as long as the machine has it, also over a restart: whatever comes later, the virtual address of another program
// say, does not take its place. Another one does when it has been away for a while; again is what is left of that.
func (r *Room) prefer(list []string) (preferred []string, again time.Duration) {
	n := slices.Index(list, r.first)
	if len(list) == 0 || n >= 0 {
		r.away = time.Time{}
		if n > 0 {
			list = append([]string{r.first}, slices.Delete(list, n, n+1)...)
		}
		return list, 0
	}
	now := r.config.Now()
	if r.away.IsZero() {
		r.away = now
	}
	if left := returns - now.Sub(r.away); r.first != "" && left > 0 {
		return list, left
	}
	r.away = time.Time{}
	r.keepFirst(list[0])
	return list, 0
}

// keptVersion is the version of the format of the file that keeps the first address.
const keptVersion = 1

// keptFile is its content.
type keptFile struct {
	First string `json:"first"`
}

// readFirst reads the first address from earlier. One that cannot be read is as good as none.
func (r *Room) readFirst() {
	if r.config.Kept == "" {
		return
	}
	var file keptFile
	if err := storage.ReadDocument(r.config.Kept, keptVersion, &file); err == nil {
		r.first = file.First
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.config.Log.Warn("the first address from earlier cannot be read; the first one is chosen anew", "error", err)
	}
}

// keepFirst keeps the first address for the next start.
func (r *Room) keepFirst(first string) {
	if r.first == first {
		return
	}
	r.first = first
	if r.config.Kept == "" {
		return
	}
	if err := storage.WriteDocument(r.config.Kept, keptVersion, keptFile{First: first}, 0o600); err != nil {
		r.config.Log.Warn("the first address cannot be kept for the next start", "error", err)
	}
}
