package limits

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Message is how long a message may be for those who receive it, in bytes: on the plugin connection, of the cluster API and of a node's own
// API. gRPC's own 4 MiB would be too little for the directory of some hundred nodes.
const Message = 16 << 20

// What a manifest may have at most; sizes are in bytes. Manifests are kept in the catalog and sent to every node that runs one of their roles.
const (
	// Manifest is the size of a whole manifest. It leaves room in the catalog's record for digests and grants.
	Manifest = 448 << 10
	// Version is the length of the plugin's version.
	Version = 64
	// Roles is how many roles a plugin offers.
	Roles = 64
	// Summary is the length of a role's summary.
	Summary = 200
	// Needs is how many roles and capabilities a role requires, and how many capabilities it provides.
	Needs = 32
	// Capability is the length of a capability's name.
	Capability = 128
	// Grants is how many grants a role wants, Parameters how many parameters a grant has.
	Grants     = 32
	Parameters = 16
	// GrantName is the length of the name of a grant or of one of its parameters, Parameter that of a parameter's value.
	GrantName = 64
	Parameter = 4096
	// Schema is the size of the JSON Schema of a role's configuration.
	Schema = 256 << 10
	// Configuration is the size of a role's configuration.
	Configuration = 256 << 10
	// Ports is how many ports a role declares, PortName the length of a port's name.
	Ports    = 64
	PortName = 32
)

// What a running role may state at most; lengths are in bytes. The cluster keeps it and the directory carries it to every node.
const (
	// Name is the length of the name of an endpoint or a published value.
	Name = 64
	// Endpoints is how many endpoints an instance has, Address the length of one's address.
	Endpoints = 32
	Address   = 512
	// Values is how many values an instance publishes, Value the length of one.
	Values = 32
	Value  = 4096
	// Published is how much all endpoints and values of an instance take in the directory, in bytes.
	Published = 32 << 10
	// Reason is the length of the reason that a role gives for its state: one sentence. What is longer belongs into the log.
	Reason = 512
	// Metrics is the size of a role's own metrics, as text.
	Metrics = 1 << 20
)

// Attestation is the size of a signed conformance report, in bytes. The cluster keeps one for each executable of its catalog.
const Attestation = 64 << 10

// What a node may report at most.
const (
	// Report is the size of the whole status, in bytes. The store takes 1.5 MiB in one request.
	Report = 512 << 10
	// ReportedPublished is how much all endpoints and values of a node's instances take in the directory, in bytes. In a cluster of more than DirectoryPublished/ReportedPublished nodes
	// the curator tells them less.
	ReportedPublished = 64 << 10
	// ReportedInstances is how many roles a node runs.
	ReportedInstances = 64
	// ReportedAddresses is how many addresses a node has.
	ReportedAddresses = 64
	// ReportedText is the length of every other text, in bytes: the core's own reasons too, which may list several problems.
	ReportedText = 4096
)

// DirectoryPublished is how much all endpoints and values of the whole directory take at most, in bytes: every role that follows the directory is sent it in one message.
const DirectoryPublished = Message / 2

// DirectoryLabels is how much the labels of all nodes take in the directory at most, in bytes, beside what is published. Most clusters have less than 1 KiB for each node.
const DirectoryLabels = Message / 4

// NodeLabels is how much the labels of one node take, in bytes. So nobody can leave another node of up to 1,024 without room for as much.
const NodeLabels = 4 << 10

// SocketPath is the longest path of a Unix socket, in bytes: the kernel's 108 without the final zero.
const SocketPath = 107

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// DigestOK reports whether a text is a digest as Reeve writes it: "sha256:" and 64 hex digits.
func DigestOK(text string) bool { return digestPattern.MatchString(text) }

// Line reports whether a text is UTF-8 of one line that a log or a terminal takes for nothing else: no control characters, no line ends, no marks
// that turn the direction of writing.
func Line(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) < 0
}

// Clean returns a text that Line takes: what is not part of such a line is escaped as in a Go string, such as \x1b, \n and \u202e. The text becomes at
// most four times as long.
func Clean(text string) string {
	if Line(text) {
		return text
	}
	var cleaned strings.Builder
	for len(text) > 0 {
		_, size := utf8.DecodeRuneInString(text)
		if one := text[:size]; Line(one) {
			cleaned.WriteString(one)
		} else {
			quoted := strconv.Quote(one)
			cleaned.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return cleaned.String()
}

// NameOK reports whether name may name an endpoint or a published value: one line of 1 to Name bytes.
func NameOK(name string) bool { return name != "" && len(name) <= Name && Line(name) }

// Cut keeps at most size bytes of a text, and no part of a character.
func Cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}
