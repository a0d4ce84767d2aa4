package rules

import (
	"crypto/ed25519"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

// Limits of what one record may hold, beyond those that proto/limits shares with other processes. They keep every transaction below what the store takes at once, and every answer below what a client
// takes by default.
const (
	// MaxPlugins is how many plugins a catalog may hold, and MaxRoles how many roles a node may run.
	MaxPlugins = 64
	MaxRoles   = limits.ReportedInstances
	// MaxNode and MaxPlugin are the sizes of whole records in bytes. That of a plugin holds up to three manifests, and two of the largest with all
	// that is granted by them.
	MaxNode   = 768 << 10
	MaxPlugin = 1184 << 10
	// MaxCatalog is the size of all plugins together: all of them are one answer.
	MaxCatalog = 12 << 20

	maxLabels     = 64
	maxLabelKey   = 128
	maxLabelValue = 256
	maxPlatforms  = 16
	// maxProblem is how long what another package says of a value may be.
	maxProblem = 512
)

// Problem is something wrong with a request.
type Problem struct {
	// Field is the path of the field in the request, such as "plugins[0].manifest.name".
	Field string
	// Message says what is wrong and what would be right.
	Message string
}

func (p Problem) String() string { return p.Field + ": " + p.Message }

// Problems is all that is wrong with a request.
type Problems []Problem

func (p *Problems) add(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// clusterIDPattern is a label of a DNS name, since the cluster ID is the first part of the trust domain.
var clusterIDPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$`)

// ClusterID checks a cluster ID.
func ClusterID(field, id string) (problems Problems) {
	if !clusterIDPattern.MatchString(id) {
		problems.add(field, "%s is not a cluster ID: 1 to 50 of a-z, 0-9 and '-', with no '-' at either end", quote(id))
	}
	return problems
}

// PublicKey checks an Ed25519 public key.
func PublicKey(field string, key []byte) (problems Problems) {
	if len(key) != ed25519.PublicKeySize {
		problems.add(field, "it has %d bytes, an Ed25519 public key has %d", len(key), ed25519.PublicKeySize)
	}
	return problems
}

// Labels checks the labels of a node.
func Labels(field string, labels map[string]string) (problems Problems) {
	if len(labels) > maxLabels {
		problems.add(field, "there are %d labels, a node has at most %d", len(labels), maxLabels)
		return problems
	}
	for key, value := range labels {
		if key == "" || len(key) > maxLabelKey {
			problems.add(field, "the key %s of a label must have 1 to %d bytes", quote(key), maxLabelKey)
		}
		if len(value) > maxLabelValue {
			problems.add(field, "the value of label %s has %d bytes, at most %d fit", quote(key), len(value), maxLabelValue)
		}
	}
	return problems
}

func (p *Problems) name(field, what, name string) {
	if !identity.ValidName(name) {
		p.add(field, "%s is not the name of a %s: 1 to 32 of a-z, 0-9 and '-', a letter first and no '-' last", quote(name), what)
	}
}

func (p *Problems) line(field, text string, most int) {
	if len(text) > most || !limits.Line(text) {
		p.add(field, "it has %d bytes, and must be one line of at most %d", len(text), most)
	}
}

// quote shows a string of a caller in a message without letting it grow the message.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", s[:cut])
	}
	return fmt.Sprintf("%q", s)
}
