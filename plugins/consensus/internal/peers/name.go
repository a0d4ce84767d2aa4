package peers

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// scheme is that of the URI by which a certificate names its member.
const scheme = "reeve-peer"

// ServerName is the DNS name in every peer's certificate. It is the same for all, so that their addresses do not matter: whose a connection is says the URI.
const ServerName = "peer.consensus.reeve"

// Name is a member of a store.
type Name struct {
	Cluster, Node string
	// Member is etcd's ID.
	Member uint64
}

// URI is how a certificate states it.
func (n Name) URI() *url.URL {
	return &url.URL{Scheme: scheme, Host: n.Cluster, Path: "/" + n.Node + "/" + FormatMember(n.Member)}
}

// NameOf reads which member a certificate is of: it has one URI, written as URI writes it.
func NameOf(certificate *x509.Certificate) (Name, error) {
	if certificate.IsCA || len(certificate.URIs) != 1 {
		return Name{}, errors.New("not a peer's certificate: it has not one URI, or is a CA's")
	}
	uri := certificate.URIs[0]
	node, member, _ := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	id, err := ParseMember(member)
	name := Name{Cluster: uri.Host, Node: node, Member: id}
	if err != nil || node == "" || name.Cluster == "" || name.URI().String() != uri.String() {
		return Name{}, fmt.Errorf("%q does not name a member", uri)
	}
	return name, nil
}

// FormatMember is how etcd prints the ID of a member.
func FormatMember(id uint64) string { return strconv.FormatUint(id, 16) }

// ParseMember reads the ID of a member. Those that raft uses for itself are none.
func ParseMember(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || id == 0 || id > maxMember || FormatMember(id) != text {
		return 0, fmt.Errorf("%q is not the ID of a member", text)
	}
	return id, nil
}

// maxMember keeps clear of the IDs at the upper end that raft gives to its own threads.
const maxMember = 1<<64 - 1<<8

// NewMember chooses an ID that no member has had.
func NewMember() (uint64, error) {
	for {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return 0, err
		}
		if id := binary.BigEndian.Uint64(random[:]); id != 0 && id <= maxMember {
			return id, nil
		}
	}
}
