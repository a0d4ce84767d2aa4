package peers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Where root keeps how far the members have come. Node IDs and the IDs of members follow.
const (
	announcedPrefix = Prefix + "announced/"
	givenUpPrefix   = Prefix + "given-up/"
	// RemovedPrefix is that of the removals that are not done yet.
	RemovedPrefix = Prefix + "removed/"
	// AbsentPrefix is that of the members' word that they have nothing to do with a removed one any more.
	AbsentPrefix = Prefix + "absent/"
	// DamagedPrefix is that of what the leader has found about members whose data differs from that of others. The value says why, and what to do.
	DamagedPrefix = Prefix + "damaged/"
)

// maxDocument bounds the documents, which have about 100 bytes.
const maxDocument = 4 << 10

// Announcement is a node's wish to have a member, which it has prepared.
type Announcement struct {
	// Member is the ID that the member is to have.
	Member uint64
	// Address is where it listens: host:port.
	Address string
}

type announcement struct {
	Member  string `json:"member"`
	Address string `json:"address"`
}

// AnnouncementKey is where a node's is kept.
func AnnouncementKey(node string) string { return announcedPrefix + node }

// GivenUpKey is where it is kept why a node's member was given up; its value is a sentence for people.
func GivenUpKey(node string) string { return givenUpPrefix + node }

// RemovedKey is where the removal of a member is kept until it is done; its value is the ID of its node.
func RemovedKey(member uint64) string { return RemovedPrefix + FormatMember(member) }

// AbsentKey is where a member says that it has nothing to do with a removed one any more.
func AbsentKey(removed, member uint64) string {
	return AbsentOf(removed) + FormatMember(member)
}

// DamagedKey is where it is kept that a member is damaged, which a majority is a witness of (certain), or that some members differ and it cannot be told which of them are damaged.
func DamagedKey(member uint64, certain bool) string {
	if certain {
		return DamagedPrefix + "certain/" + FormatMember(member)
	}
	return DamagedPrefix + "possible/" + FormatMember(member)
}

// DamageOf reports whether a key is DamagedKey of a member.
func DamageOf(key string, member uint64) (certain, of bool) {
	certain = key == DamagedKey(member, true)
	return certain, certain || key == DamagedKey(member, false)
}

// AbsentOf is the prefix of what the members say of a removed one.
func AbsentOf(removed uint64) string { return AbsentPrefix + FormatMember(removed) + "/" }

// Marshal is the announcement as it is stored.
func (a Announcement) Marshal() string {
	content, err := json.Marshal(announcement{Member: FormatMember(a.Member), Address: a.Address})
	if err != nil {
		panic(err) // two strings
	}
	return string(content)
}

// ParseAnnouncement reads what Marshal wrote.
func ParseAnnouncement(content []byte) (Announcement, error) {
	var read announcement
	if err := decode(content, &read); err != nil {
		return Announcement{}, fmt.Errorf("not an announcement: %w", err)
	}
	id, err := ParseMember(read.Member)
	if err != nil {
		return Announcement{}, err
	}
	return Announcement{Member: id, Address: read.Address}, CheckAddress(read.Address)
}

// State is what a member says of itself to the others.
type State struct {
	Member  string `json:"member"`
	Leader  string `json:"leader"`
	Applied uint64 `json:"applied"`
	// Finished says that it starts from what it has stored, whether anybody answers it or not.
	Finished bool `json:"finished"`
	// Asked says that it asks the others, and so knows whom it reaches. One of an older version does not.
	Asked bool `json:"asked,omitempty"`
	// Reached are the members that answered it when it last asked them, AskedAgo milliseconds ago; Unreached are those that have not answered for some time.
	Reached   []string `json:"reached,omitempty"`
	Unreached []string `json:"unreached,omitempty"`
	AskedAgo  int64    `json:"askedAgo,omitempty"`
}

// ParseState reads one that was encoded as JSON.
func ParseState(content []byte) (State, error) {
	var state State
	if err := decode(content, &state); err != nil {
		return state, fmt.Errorf("not the state of a member: %w", err)
	}
	return state, nil
}

func decode(content []byte, into any) error {
	if len(content) > maxDocument {
		return fmt.Errorf("longer than %d bytes", maxDocument)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// maxHost is the longest name of a host.
const maxHost = 253

// hostCharacters are those of the name of a host.
const hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."

// CheckAddress says what keeps host:port from being the address of one member: the host is an IP address or a name, not every address of the machine.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address %q is not host:port", cut(address))
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return fmt.Errorf("the address %q has no port from 1 to 65535", cut(address))
	}
	if ip := net.ParseIP(host); ip != nil {
		if ip.IsUnspecified() || ip.IsMulticast() {
			return fmt.Errorf("at the address %q no single member can be reached", address)
		}
		return nil
	}
	if host == "" || len(host) > maxHost || strings.TrimLeft(host, hostCharacters) != "" {
		return fmt.Errorf("the address %q has no host", cut(address))
	}
	return nil
}

// cut keeps what somebody else wrote short in an error.
func cut(text string) string { return text[:min(len(text), maxHost)] }

// URL is the peer URL of an address.
func URL(address string) string { return "https://" + address }
