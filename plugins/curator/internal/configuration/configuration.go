package configuration

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/reeveproject/reeve/sdk/role"
)

// Schema is the JSON Schema of the configuration.
const Schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "listen": {"type": "string", "pattern": "` + addressPattern + `", "description": "host:port on which the cluster API is served; port 0: a free one; no host: on all addresses, and others are told the first one of the node, also when that changes"},
    "advertise": {"type": "string", "pattern": "` + addressPattern + `", "description": "host:port at which others reach it; port 0: the port that is listened on"}
  }
}`

// addressPattern is host:port as far as a pattern can say it.
const addressPattern = `^([^:/\\[\\]]*|\\[[^/\\[\\]]+\\]):[0-9]{1,5}$`

// DefaultListen is reachable from this machine only, which is all that a cluster of one node needs. A machine without 127.0.0.1 has ::1 for it.
const DefaultListen = "127.0.0.1:0"

// Configuration is what an operator can set.
type Configuration struct {
	Listen    string `json:"listen"`
	Advertise string `json:"advertise"`
}

// Parse reads a configuration; an empty document is the defaults. The error is a *role.ConfigurationError with all problems.
func Parse(document []byte) (Configuration, error) {
	configuration := Configuration{Listen: DefaultListen}
	if err := role.Decode(document, &configuration); err != nil {
		return Configuration{}, err
	}
	var problems role.ConfigurationError
	address(&problems, "/listen", configuration.Listen)
	if configuration.Advertise != "" {
		if told, ok := address(&problems, "/advertise", configuration.Advertise); ok && everywhere(told) {
			problems.Add("/advertise", "%q names no address: want one that other machines can reach, such as \"192.0.2.1:7400\"", configuration.Advertise)
		}
	}
	if err := problems.Err(); err != nil {
		return Configuration{}, err
	}
	return configuration, nil
}

// Follows says whether the address that others are told depends on that of the node, which may change.
func (c Configuration) Follows() bool {
	return c.Advertise == "" && c.Everywhere()
}

// Everywhere says whether all addresses of the machine are listened on.
func (c Configuration) Everywhere() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && everywhere(host)
}

// Endpoint is the address that others are told, once it is known which one is listened on. node is the node's addresses, the preferred one first; if one is needed and
// none is listened on, the endpoint is empty.
func (c Configuration) Endpoint(listening net.Addr, node []string) string {
	if c.Follows() {
		_, port, err := net.SplitHostPort(listening.String())
		first := slices.IndexFunc(node, c.hears)
		if err != nil || first < 0 {
			return ""
		}
		return net.JoinHostPort(node[first], port)
	}
	if c.Advertise == "" {
		return listening.String()
	}
	host, port, err := net.SplitHostPort(c.Advertise)
	if err != nil || port != "0" {
		return c.Advertise
	}
	if _, port, err = net.SplitHostPort(listening.String()); err != nil {
		return c.Advertise
	}
	return net.JoinHostPort(host, port)
}

// hears reports whether an address of the node is among those that are listened on, where these are all: 0.0.0.0 is those of IPv4 only.
func (c Configuration) hears(node string) bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || host == "" {
		return err == nil
	}
	on, err := netip.ParseAddr(host)
	if err != nil || !on.Is4() {
		return err == nil // :: is both
	}
	address, err := netip.ParseAddr(node)
	return err == nil && address.Unmap().Is4()
}

func address(problems *role.ConfigurationError, path, text string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		// Whatever it is, it is none, and not to be shown to whoever reads states and logs.
		problems.Add(path, "it is not host:port, such as %q", DefaultListen)
		return "", false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		problems.Add(path, "the port is not a number from 0 to 65535")
		return "", false
	}
	return host, true
}

// everywhere reports whether a host stands for all addresses of a machine.
func everywhere(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || err == nil && address.IsUnspecified()
}
