package keeper

import (
	"path/filepath"

	"github.com/reeveproject/reeve/sdk/role"
)

// DefaultPath is the file that the role wants to keep.
const DefaultPath = "/etc/hosts"

// grantReplaceFile is the power that the role uses.
const grantReplaceFile = "replace-file"

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
    }
  }
}
`

// Configuration is the role's configuration.
type Configuration struct {
	// Path is the hosts file: absolute, and written as in the grant. Nil: the one that the role is granted.
	Path *string `json:"path"`
}

// ParseConfiguration reads a configuration, and returns a *role.ConfigurationError if something is wrong with it.
func ParseConfiguration(document []byte) (Configuration, error) {
	var configuration Configuration
	if err := role.Decode(document, &configuration); err != nil {
		return Configuration{}, err
	}
	if path := configuration.Path; path != nil && (!filepath.IsAbs(*path) || filepath.Clean(*path) != *path || *path == "/") {
		var problems role.ConfigurationError
		problems.Add("/path", "%q: want an absolute path of a file, without . or .. or a slash at its end", *path)
		return Configuration{}, problems.Err()
	}
	return configuration, nil
}

// File is the file that is kept: the configured one, or else the first that the role is granted, or else the one that it wants.
func (c Configuration) File(grants []role.Grant) string {
	if c.Path != nil {
		return *c.Path
	}
	for _, grant := range grants {
		if path := grant.Parameters["path"]; grant.Name == grantReplaceFile && path != "" {
			return path
		}
	}
	return DefaultPath
}
