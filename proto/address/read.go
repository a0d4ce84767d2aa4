package address

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// ErrChanging says that the kernel's lists changed while they were read, again and again.
var ErrChanging = errors.New("the addresses of this machine change while they are read")

// reads is how often a list is read that changes meanwhile.
const reads = 5

// What the package syscall does not name.
const (
	interrupted  = 0x10 // NLM_F_DUMP_INTR
	typeMask     = 0x3fff
	infoKind     = 1 // IFLA_INFO_KIND
	addressFlags = 8 // IFA_FLAGS
	routeTable   = 15
	carrier      = 1 << 16 // IFF_LOWER_UP
	hopLength    = 8       // of struct rtnexthop

	secondary  = 0x01 // IFA_F_SECONDARY; of IPv6: IFA_F_TEMPORARY
	dadFailed  = 0x08
	deprecated = 0x20
	tentative  = 0x40
)

// read asks the kernel.
func read() (Facts, error) {
	var facts Facts
	for _, list := range []struct {
		request int
		answer  uint16
		into    func(body []byte, attributes map[uint16][]byte)
	}{
		{syscall.RTM_GETLINK, syscall.RTM_NEWLINK, facts.link},
		{syscall.RTM_GETADDR, syscall.RTM_NEWADDR, facts.address},
		{syscall.RTM_GETROUTE, syscall.RTM_NEWROUTE, facts.route},
	} {
		messages, err := dump(list.request)
		if err != nil {
			return Facts{}, err
		}
		for _, message := range messages {
			if message.Header.Type != list.answer {
				continue
			}
			parsed, err := syscall.ParseNetlinkRouteAttr(&message)
			if err != nil {
				return Facts{}, fmt.Errorf("address: read what the kernel says: %w", err)
			}
			attributes := make(map[uint16][]byte)
			for _, a := range parsed {
				attributes[a.Attr.Type&typeMask] = a.Value
			}
			list.into(message.Data, attributes)
		}
	}
	return facts, nil
}

// dump is one of the kernel's lists.
func dump(request int) ([]syscall.NetlinkMessage, error) {
	for range reads {
		answer, err := syscall.NetlinkRIB(request, syscall.AF_UNSPEC)
		if err != nil {
			return nil, fmt.Errorf("address: ask the kernel for interfaces, addresses and routes: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(answer)
		if err != nil {
			return nil, fmt.Errorf("address: read what the kernel says: %w", err)
		}
		whole := true
		for _, message := range messages {
			whole = whole && message.Header.Flags&interrupted == 0
		}
		if whole {
			return messages, nil
		}
	}
	return nil, ErrChanging
}

func (f *Facts) link(body []byte, attributes map[uint16][]byte) {
	flags := binary.NativeEndian.Uint32(body[8:])
	f.Links = append(f.Links, Link{
		Index: int(int32(binary.NativeEndian.Uint32(body[4:]))), Master: int(number(attributes[syscall.IFLA_MASTER])), //nolint:gosec // as the kernel has it
		Name: text(attributes[syscall.IFLA_IFNAME]), Kind: kind(attributes[syscall.IFLA_LINKINFO]),
		Loopback: flags&syscall.IFF_LOOPBACK != 0, Up: flags&syscall.IFF_UP != 0, Carrier: flags&carrier != 0,
	})
}

func (f *Facts) address(body []byte, attributes map[uint16][]byte) {
	value, ok := attributes[syscall.IFA_LOCAL]
	if !ok {
		value = attributes[syscall.IFA_ADDRESS]
	}
	ip, ok := netip.AddrFromSlice(value)
	if !ok {
		return
	}
	flags := uint32(body[2])
	if all, ok := attributes[addressFlags]; ok {
		flags = number(all)
	}
	held := Held{Prefix: netip.PrefixFrom(ip, int(body[1])), Link: int(binary.NativeEndian.Uint32(body[4:]))}
	switch {
	case flags&dadFailed != 0:
		held.Passing = "a duplicate of another machine's"
	case flags&tentative != 0:
		held.Passing = "still tentative (duplicate address detection)"
	case flags&deprecated != 0:
		held.Passing = "deprecated"
	case flags&secondary != 0 && ip.Is6():
		held.Passing = "temporary"
	default:
		held.Secondary = flags&secondary != 0
	}
	f.Addresses = append(f.Addresses, held)
}

// route takes note of default routes of the main table. A half of all addresses (0.0.0.0/1), which a VPN takes, is none.
func (f *Facts) route(body []byte, attributes map[uint16][]byte) {
	family, table := body[0], uint32(body[4])
	if named, ok := attributes[routeTable]; ok {
		table = number(named)
	}
	flags := binary.NativeEndian.Uint32(body[8:])
	if family != syscall.AF_INET && family != syscall.AF_INET6 || body[1] != 0 || table != syscall.RT_TABLE_MAIN || body[7] != syscall.RTN_UNICAST ||
		flags&syscall.RTM_F_CLONED != 0 {
		return
	}
	metric := number(attributes[syscall.RTA_PRIORITY])
	if out := number(attributes[syscall.RTA_OIF]); out != 0 {
		f.Defaults = append(f.Defaults, Default{Link: int(out), Metric: metric})
	}
	for hops := attributes[syscall.RTA_MULTIPATH]; len(hops) >= hopLength; {
		f.Defaults = append(f.Defaults, Default{Link: int(binary.NativeEndian.Uint32(hops[4:])), Metric: metric})
		length := (int(binary.NativeEndian.Uint16(hops)) + 3) &^ 3
		if length < hopLength || length > len(hops) {
			return
		}
		hops = hops[length:]
	}
}

func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

func text(value []byte) string { return strings.TrimRight(string(value), "\x00") }

// kind finds the kind of an interface among what is said of it.
func kind(info []byte) string {
	const header = 4
	for len(info) >= header {
		length := int(binary.NativeEndian.Uint16(info))
		if length < header || length > len(info) {
			return ""
		}
		if binary.NativeEndian.Uint16(info[2:])&typeMask == infoKind {
			return text(bytes.Clone(info[header:length]))
		}
		info = info[min((length+3)&^3, len(info)):]
	}
	return ""
}
