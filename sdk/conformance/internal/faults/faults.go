// Package faults names the faults of the mutants, each with the check that must find it: a mutant is a plugin with that one fault. It owns no state.
package faults

import (
	"bytes"
	"maps"
	"strings"
)

// slot is in the mutant's executable, and its fault is written over the dots: neither a name nor a variable of the environment would reach it in its sandbox.
const slot = "fault-of-the-mutant:........................................"

// Slots are where in an executable its slots are. It is found once: an executable is long.
func Slots(executable []byte) (at []int64) {
	for from := 0; ; {
		found := bytes.Index(executable[from:], []byte(slot))
		if found < 0 {
			return at
		}
		at = append(at, int64(from+found))
		from += found + len(slot)
	}
}

// Filled is what is written over a slot for a fault.
func Filled(fault string) []byte { return []byte(slot[:mark] + fault + slot[mark+len(fault):]) }

// mark is where in the slot the fault begins.
const mark = len("fault-of-the-mutant:")

// own is what the slot of this executable is.
var own = slot

// Own is the fault of this executable.
func Own() string { return strings.TrimRight(own[mark:], ".") }

// None is the fault of the plugin that has none, and Plain that of one that has only the first of its roles.
const (
	None  = "none"
	Plain = "plain"
)

// The faults.
const (
	NoRunBit       = "no-run-bit" // of the file: whoever makes the mutant takes the bit away
	ServesByHand   = "serves-by-hand"
	SilentByHand   = "silent-by-hand"
	Greets         = "greets"
	Mute           = "mute"
	EndsAtOnce     = "ends-at-once"
	OtherVersion   = "other-version"
	NetRPC         = "net-rpc"
	ClaimsVersions = "claims-versions"
	WantsTLS       = "wants-tls"
	ListensOnTCP   = "listens-on-tcp"
	OtherDirectory = "other-directory"

	DescribeFails   = "describe-fails"
	DescribeHangs   = "describe-hangs"
	NoProtocol      = "no-protocol"
	BadVersion      = "bad-version"
	UnknownGrant    = "unknown-grant"
	BadSchema       = "bad-schema"
	OutsideSchema   = "outside-schema"
	ManifestChanges = "manifest-changes"

	AnswersUnstarted  = "answers-unstarted"
	StartsAnyRole     = "starts-any-role"
	ManifestLies      = "manifest-lies"
	OtherInstance     = "other-instance"
	StatusUnbounded   = "status-unbounded"
	NeverReady        = "never-ready"
	SecondInstance    = "second-instance"
	RefusesItself     = "refuses-itself"
	HealthHangs       = "health-hangs"
	BadMetrics        = "bad-metrics"
	StaysAfterStop    = "stays-after-stop"
	BadExit           = "bad-exit"
	LeavesChild       = "leaves-child"
	SecondStopPanics  = "second-stop-panics"
	StopWhileStarting = "stop-while-starting"
	IgnoresGrace      = "ignores-grace"
	IgnoresSIGTERM    = "ignores-sigterm"
	KeepsLock         = "keeps-lock"
	TiresOut          = "tires-out"

	TakesTooLittle   = "takes-too-little"
	TakesUnknown     = "takes-unknown"
	OtherRefusal     = "other-refusal"
	NoPaths          = "no-paths"
	FirstProblem     = "first-problem"
	TakesHalf        = "takes-half"
	BareIsConfigured = "bare-is-configured"

	PlainLog     = "plain-log"
	LongLine     = "long-line"
	Floods       = "floods"
	LogsSecret   = "logs-secret"
	QuotesSecret = "quotes-secret"
)

// Table returns the check that must find each fault.
func Table() map[string]string {
	all := map[string]string{
		NoRunBit:       "handshake.executable",
		ServesByHand:   "handshake.cookie",
		SilentByHand:   "handshake.cookie",
		Greets:         "handshake.line",
		Mute:           "handshake.line",
		EndsAtOnce:     "handshake.line",
		OtherVersion:   "handshake.version",
		NetRPC:         "handshake.version",
		ClaimsVersions: "handshake.versions",
		WantsTLS:       "handshake.plain",
		ListensOnTCP:   "handshake.socket",
		OtherDirectory: "handshake.socket",

		DescribeFails:   "manifest.describe",
		DescribeHangs:   "manifest.describe",
		NoProtocol:      "manifest.protocols",
		BadVersion:      "manifest.valid",
		UnknownGrant:    "manifest.valid",
		BadSchema:       "manifest.schema",
		OutsideSchema:   "manifest.schema",
		ManifestChanges: "manifest.steady",

		AnswersUnstarted:  "lifecycle.not-started",
		StartsAnyRole:     "lifecycle.unknown-role",
		ManifestLies:      "lifecycle.start",
		OtherInstance:     "lifecycle.status",
		StatusUnbounded:   "lifecycle.status",
		NeverReady:        "lifecycle.ready",
		SecondInstance:    "lifecycle.start-twice",
		RefusesItself:     "lifecycle.start-twice",
		HealthHangs:       "lifecycle.health",
		BadMetrics:        "lifecycle.metrics",
		StaysAfterStop:    "lifecycle.stop",
		BadExit:           "lifecycle.stop",
		LeavesChild:       "lifecycle.leftovers",
		SecondStopPanics:  "lifecycle.stop-twice",
		StopWhileStarting: "lifecycle.stop-starting",
		IgnoresGrace:      "lifecycle.grace",
		IgnoresSIGTERM:    "lifecycle.sigterm",
		KeepsLock:         "lifecycle.kill",
		TiresOut:          "lifecycle.cycles",

		TakesTooLittle:   "configuration.refused",
		TakesUnknown:     "configuration.refused",
		OtherRefusal:     "configuration.refused",
		NoPaths:          "configuration.paths",
		FirstProblem:     "configuration.all",
		TakesHalf:        "configuration.no-json",
		BareIsConfigured: "configuration.none",

		PlainLog:     "logging.structured",
		LongLine:     "logging.lines",
		Floods:       "logging.bounded",
		LogsSecret:   "logging.secret",
		QuotesSecret: "logging.secret",
	}
	for _, more := range []map[string]string{OfStore(), ofRestart(), ofCosts(), OfServer(), OfSteward()} {
		maps.Copy(all, more)
	}
	return all
}
