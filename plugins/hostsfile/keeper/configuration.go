package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

// DefaultPath is the file that the role wants to keep. It is also the one in which the machine looks names up.
const DefaultPath = "/etc/hosts"

// The powers that the role uses, and the files that it wants them for.
const (
	grantReplaceFile  = "replace-file"
	grantSetHostname  = "set-hostname"
	grantSetMachineID = "set-machine-id"

	hostnamePath  = "/etc/hostname"
	machineIDPath = "/etc/machine-id"

	pathParameter = "path"
)

// Grants returns the powers of the host that the role wants.
func Grants() []role.Grant {
	of := func(name, path string) role.Grant {
		return role.Grant{Name: name, Parameters: map[string]string{pathParameter: path}}
	}
	return []role.Grant{
		of(grantReplaceFile, DefaultPath), of(grantSetHostname, hostnamePath), of(grantSetMachineID, machineIDPath),
		// Whether the node finds itself is looked up as any program would: by way of a server for names too, if the machine has one.
		role.GrantConnect("53"),
	}
}

// Schema is the JSON Schema of the configuration.
const Schema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "path": {
      "type": "string",
      "pattern": "^/.*[^/]$",
      "description": "The hosts file; left out: the one that the role is granted. The role needs the grant replace-file for exactly this path."
    },
    "hostname": {
      "anyOf": [
        {"type": "boolean"},
        {"type": "string", "maxLength": 64, "pattern": "` + hostnamePattern + `", "not": {"pattern": "` + otherPattern + `"}}
      ],
      "default": false,
      "description": "Whether the machine is given a host name: true is the node ID, a text is that name. The role needs the grant set-hostname."
    },
    "machineID": {
      "type": "boolean",
      "default": false,
      "description": "Whether a machine that has no ID (machine-id(5)) is given one: the digits of the node ID. The role needs the grant set-machine-id."
    }
  }
}
`

// hostnamePattern is a host name as in RFC 1123.
const hostnamePattern = `^[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?([.][0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?)*$`

// otherPattern is what has that form and is something else: programs take a name whose last part is a number, also a hexadecimal one, for an address, and localhost is
// every machine.
const otherPattern = `(^|[.])([0-9]+|0[xX][0-9a-fA-F]*|[lL][oO][cC][aA][lL][hH][oO][sS][tT])$|^[lL][oO][cC][aA][lL][hH][oO][sS][tT][.]`

// maxHostname is how long a host name may be.
const maxHostname = 64

var hostnameForm, otherForm = regexp.MustCompile(hostnamePattern), regexp.MustCompile(otherPattern)

// Configuration is the role's configuration.
type Configuration struct {
	// Path is the hosts file: absolute, and written as in the grant. Nil: the one that the role is granted.
	Path *string `json:"path"`
	// Hostname is whether and how the machine is named; not by default.
	Hostname Hostname `json:"hostname"`
	// MachineID is whether a machine without an ID is given one; not by default.
	MachineID bool `json:"machineID"`
}

// Hostname is whether the machine is given a host name: false, true for the node ID, or the name.
type Hostname struct {
	Set  bool
	Name string // empty: the node ID
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hostname) UnmarshalJSON(value []byte) error {
	switch value = bytes.TrimSpace(value); string(value) {
	case "null":
		return nil // as in encoding/json: leaves what is there
	case "true", "false":
		*h = Hostname{Set: string(value) == "true"}
		return nil
	}
	var name string
	if err := json.Unmarshal(value, &name); err != nil {
		return errors.New("want true, false or a host name")
	}
	if len(name) > maxHostname || !hostnameForm.MatchString(name) || strings.HasSuffix(name, "\n") {
		return fmt.Errorf("%q: want a host name: at most %d letters, digits, '-' and '.', such as node1.example", name, maxHostname)
	}
	if otherForm.MatchString(name) {
		return fmt.Errorf("%q: want a name of this machine, such as node1.example: programs take a name whose last part is a number for an address, and localhost is every machine", name)
	}
	*h = Hostname{Set: true, Name: name}
	return nil
}

// Of is the host name of a node; empty: it is not named.
func (h Hostname) Of(nodeID string) string {
	switch {
	case !h.Set:
		return ""
	case h.Name == "":
		return nodeID
	}
	return h.Name
}

// ParseConfiguration reads a configuration, and returns a *role.ConfigurationError if something is wrong with it.
func ParseConfiguration(document []byte) (Configuration, error) {
	var configuration Configuration
	if err := role.Decode(document, &configuration); err != nil {
		return Configuration{}, err
	}
	if path := configuration.Path; path != nil && (!filepath.IsAbs(*path) || filepath.Clean(*path) != *path || *path == "/") {
		var problems role.ConfigurationError
		// Whatever it is, it is no path, and not to be shown to whoever reads states and logs.
		problems.Add("/path", "want an absolute path of a file, without . or .. or a slash at its end")
		return Configuration{}, problems.Err()
	}
	return configuration, nil
}

// File is the file that is kept: the configured one, or else the first that the role is granted, or else the one that it wants.
func (c Configuration) File(grants []role.Grant) string {
	if c.Path != nil {
		return *c.Path
	}
	if granted := granted(grants, grantReplaceFile); len(granted) > 0 {
		return granted[0]
	}
	return DefaultPath
}

// CheckGrants returns a *role.ConfigurationError if the role is not granted the file that a configuration is for: it could do nothing.
func CheckGrants(document []byte, grants []role.Grant) error {
	configuration, err := ParseConfiguration(document)
	if err != nil {
		return err
	}
	path, files := configuration.File(grants), granted(grants, grantReplaceFile)
	for _, file := range files {
		if file == path {
			return nil
		}
	}
	var problems role.ConfigurationError
	if len(files) == 0 {
		problems.Add("/path", "the role is not granted to replace any file, and is to keep %s: have the cluster's owner grant it replace-file with path %s", path, path)
	} else {
		problems.Add("/path", "the role is granted to replace %s, and is to keep %s: configure the path that it is granted, or have the cluster's owner grant it replace-file with path %s",
			strings.Join(files, ", "), path, path)
	}
	return problems.Err()
}

// granted returns the paths for which a power is granted, and an empty one for a grant that names none.
func granted(grants []role.Grant, name string) []string {
	var paths []string
	for _, grant := range grants {
		if path := grant.Parameters[pathParameter]; grant.Name == name && (path != "" || name == grantSetHostname) {
			paths = append(paths, path)
		}
	}
	return paths
}
