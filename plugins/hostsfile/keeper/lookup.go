package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"
)

const (
	// lookupTime bounds one look-up. One in the file takes less than a millisecond; one that goes elsewhere is one that fails the test.
	lookupTime = 3 * time.Second
	// cacheTime is how long a resolver may go on with what it has read of the file: Go's keeps it for 5 s.
	cacheTime = 6 * time.Second
)

// Resolver looks names up as the programs of the machine do: a *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// errUnsettled says that a look-up found something else than the file holds, and may have been answered from what the file held before.
var errUnsettled = errors.New("the resolver has not read the file again yet")

// lookup finds out whether the node finds itself by its name. Its zero value is ready for use.
type lookup struct {
	resolver Resolver
	// last is when the resolver was last asked; verdict is what came of the last time that its answer was not an old one.
	last    time.Time
	verdict error
}

// check returns nil if the name of this node stands for its addresses in a file with this content, and for the machine if that is where it looks
// names up. errUnsettled: ask again after cacheTime, and take the verdict for the answer until then.
func (l *lookup) check(ctx context.Context, path string, content []byte, written []block.Entry, name string) error {
	own := of(written, name)
	if len(own) == 0 {
		return errors.New("this node has no address under which others could reach it, so that its name is not in the file: see the addresses in the node's parameters, or the machine's network")
	}
	for number, line := range hostLines(content) {
		if line.named(name) && !slices.Contains(own, line.address) {
			return fmt.Errorf("line %d of %s has the address %s for this node's name %s, which is not the node's: remove the name there", number+1, path, line.address, name)
		}
	}
	if path != DefaultPath {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	settled := l.last.IsZero() || time.Since(l.last) >= cacheTime
	found, err := l.resolver.LookupNetIP(ctx, "ip", name)
	l.last = time.Now()
	var verdict error
	switch strange := strangers(found, own); {
	case err != nil || len(found) == 0:
		verdict = fmt.Errorf("this node's name %s is in %s, but the machine does not find it there: have the line \"hosts:\" of /etc/nsswitch.conf begin with \"files\", and everybody allowed to read %s", name, path, path)
	case len(strange) > 0:
		verdict = fmt.Errorf("the machine finds this node's name %s at %s, which is not the node's address, and not in %s: have the line \"hosts:\" of /etc/nsswitch.conf begin with \"files\"",
			name, strange[0], path)
	}
	if verdict != nil && !settled {
		return errUnsettled
	}
	l.verdict = verdict
	return verdict
}

// strangers returns the addresses that are not among the node's own.
func strangers(found, own []netip.Addr) []netip.Addr {
	var strange []netip.Addr
	for _, address := range found {
		if address = address.Unmap(); !slices.Contains(own, address) {
			strange = append(strange, address)
		}
	}
	return strange
}

// hostLine is a line of a hosts file: an address and the names that it stands for. The zero value is that of every other line.
type hostLine struct {
	address netip.Addr
	names   []string
}

// hostLines reads a hosts file as in hosts(5).
func hostLines(content []byte) []hostLine {
	var lines []hostLine
	for text := range strings.Lines(string(content)) {
		text, _, _ = strings.Cut(text, "#")
		var line hostLine
		if fields := strings.Fields(text); len(fields) > 1 {
			if address, err := netip.ParseAddr(fields[0]); err == nil {
				line = hostLine{address: address.Unmap(), names: fields[1:]}
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// named reports whether the line is for a name. Names of hosts are the same in upper and lower case, and with a dot at the end.
func (l hostLine) named(name string) bool {
	return slices.ContainsFunc(l.names, func(other string) bool { return strings.EqualFold(strings.TrimSuffix(other, "."), name) })
}
