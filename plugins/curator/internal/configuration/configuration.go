package configuration

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/reeveproject/reeve/sdk/role"
)

// Schema is the JSON Schema of the configuration.
const Schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "listen": {"type": "string", "pattern": "` + addressPattern + `", "description": "host:port on which the cluster API is served; port 0: a free one"},
    "advertise": {"type": "string", "pattern": "` + addressPattern + `", "description": "host:port at which others reach it; port 0: the port that is listened on"}
  }
}`

// addressPattern is host:port as far as a pattern can say it.
const addressPattern = `^([^:/\\[\\]]*|\\[[^/\\[\\]]+\\]):[0-9]{1,5}$`

// defaultListen is reachable from this machine only, which is all that a cluster of one node needs.
const defaultListen = "127.0.0.1:0"

// Configuration is what an operator can set.
type Configuration struct {
	Listen    string `json:"listen"`
	Advertise string `json:"advertise"`
}

// Parse reads a configuration; an empty document is the defaults. The error is a *role.ConfigurationError with all problems.
func Parse(document []byte) (Configuration, error) {
	configuration := Configuration{Listen: defaultListen}
	if err := role.Decode(document, &configuration); err != nil {
		return Configuration{}, err
	}
	var problems role.ConfigurationError
	host, ok := address(&problems, "/listen", configuration.Listen)
	if configuration.Advertise != "" {
		if told, ok := address(&problems, "/advertise", configuration.Advertise); ok && everywhere(told) {
			problems.Add("/advertise", "%q names no address: want one that other machines can reach, such as \"192.0.2.1:7400\"", configuration.Advertise)
		}
	} else if ok && everywhere(host) {
		problems.Add("/advertise", "it is needed where listen is %q, which is no address that others can be told: want one that they can reach, such as \"192.0.2.1:0\"",
			configuration.Listen)
	}
	if err := problems.Err(); err != nil {
		return Configuration{}, err
	}
	return configuration, nil
}

// Endpoint is the address that others are told, once it is known which one is listened on.
func (c Configuration) Endpoint(listening net.Addr) string {
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

func address(problems *role.ConfigurationError, path, text string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		// Whatever it is, it is none, and not to be shown to whoever reads states and logs.
		problems.Add(path, "it is not host:port, such as %q", defaultListen)
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
