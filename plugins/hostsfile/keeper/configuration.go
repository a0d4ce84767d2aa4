package keeper

import (
	"path/filepath"

	"github.com/reeveproject/reeve/sdk/role"
)

// DefaultPath is the file that is kept if the configuration names no other.
const DefaultPath = "/etc/hosts"

// Schema is the JSON Schema of the configuration.
const Schema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "path": {
      "type": "string",
      "pattern": "^/.*[^/]$",
      "default": "/etc/hosts",
      "description": "The hosts file. The role needs the grant replace-file for exactly this path."
    }
  }
}
`

// Configuration is the role's configuration.
type Configuration struct {
	// Path is the hosts file: absolute, and written as in the grant.
	Path string `json:"path"`
}

// ParseConfiguration reads a configuration, and returns a *role.ConfigurationError if something is wrong with it.
func ParseConfiguration(document []byte) (Configuration, error) {
	configuration := Configuration{Path: DefaultPath}
	if err := role.Decode(document, &configuration); err != nil {
		return Configuration{}, err
	}
	if path := configuration.Path; !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		var problems role.ConfigurationError
		problems.Add("/path", "%q: want an absolute path of a file, without . or .. or a slash at its end", path)
		return Configuration{}, problems.Err()
	}
	return configuration, nil
}
