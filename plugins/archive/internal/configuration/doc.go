// Package configuration reads and checks the configuration of the role archive, and says which grants it needs.
package configuration
