package store

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsteady says that a plugin answered Describe differently when it was asked again.
var ErrUnsteady = errors.New("its manifest is not always the same")

// MissingError says that an executable is not in the store, or is not what its digest says.
type MissingError struct {
	// Digest is "sha256:" and hex; empty if the catalog has none for this platform.
	Digest string
	// Plugin is the plugin's name, where it is known.
	Plugin string
	Reason string
}

func (e *MissingError) Error() string {
	what := "executable " + Short(e.Digest)
	if e.Digest == "" {
		what = "executable"
	}
	if e.Plugin != "" {
		what += " of plugin " + e.Plugin
	}
	return fmt.Sprintf("plugin: %s: %s; add the plugin again (reeve plugin add)", what, e.Reason)
}

// VersionError says that a plugin and the core speak no common version of a protocol, and which of them is to be upgraded.
type VersionError struct {
	// Plugin is the plugin's name, or its digest where it did not come to say its name.
	Plugin string
	// Protocol is what they speak different versions of.
	Protocol string
	// Theirs and Ours are the versions that the plugin and the core speak.
	Theirs, Ours string
	// UpgradeCore says that the core is the older one; otherwise the plugin is.
	UpgradeCore bool
}

func (e *VersionError) Error() string {
	side := "upgrade the plugin: build it with a newer sdk"
	if e.UpgradeCore {
		side = "upgrade reeved on this node"
	}
	theirs := e.Theirs
	if theirs == "" {
		theirs = "none"
	}
	return fmt.Sprintf("plugin: %s speaks %s %s, this core speaks %s: %s", e.Plugin, e.Protocol, theirs, e.Ours, side)
}

// ManifestError says what is wrong with the manifest of a plugin: all problems at once, each with where it is.
type ManifestError struct {
	// Plugin is the name that the manifest states; it may be the problem.
	Plugin   string
	Problems []string
}

func (e *ManifestError) Error() string {
	return fmt.Sprintf("plugin: the manifest of plugin %q is not valid: %s", e.Plugin, strings.Join(e.Problems, "; "))
}

// Short is a digest as people read it: the first twelve of its hex digits tell it from others.
func Short(digest string) string {
	const prefix, digits = "sha256:", 12
	if strings.HasPrefix(digest, prefix) && len(digest) > len(prefix)+digits {
		return digest[:len(prefix)+digits]
	}
	return digest
}
