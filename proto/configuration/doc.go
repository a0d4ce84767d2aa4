// Package configuration says whether the configuration of a role fits the schema in the role's manifest. The curator asks it before it stores one, and the core before it
// starts with parameters that have some. It never quotes a value of a configuration, which may be a secret. It owns no state.
package configuration
