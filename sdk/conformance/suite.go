package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/limits"
)

// cycles is how often a role is started and stopped on the same data, to show rare faults and growth.
const cycles = 20

// maxReason is the longest reason of a result in bytes: it may quote what the plugin wrote.
const maxReason = 4 << 10

// Config says what to test.
type Config struct {
	// Executable is the plugin's file.
	Executable string
	// Configurations are the roles' configurations as JSON, by role. Other roles are started without one, or with one made from their schema if that
	// requires something.
	Configurations map[string]string
	// Store opens the consensus store of the run, which is closed at the end. It is called at most once, and only if a role has a ConsensusUser.
	// Package store's Open is one. nil: checks that need a store are not run, and the verdict for a plugin that uses one is Incomplete.
	Store func(context.Context) (Store, error)
	// Reeved is the path of reeved, which makes the sandbox of nodes (`reeved confine`), of the same build as the suite. Empty: checks that need a
	// sandbox are not run, and the verdict is Incomplete.
	Reeved string
	// Checks are the IDs of the checks to run, with those that they need. The others are not run, so a report without a failure is Incomplete. It is
	// for fixing what a check has found. Empty: all checks.
	Checks []string
	// Began is called before a check runs, and Ended with every result except of checks that Checks leaves out. nil: nobody follows.
	Began func(Check)
	Ended func(Result)

	// patience is for tests of plugins that are silent on purpose: how long they have for the handshake and for Describe. 0: as long as the core gives.
	patience time.Duration
}

// Test runs the suite. It returns an error only if this machine cannot run it, or if Config.Checks has an unknown ID; everything that is wrong with
// the executable is in the report. When the context ends, the remaining checks are not run. All processes and files are gone when Test returns.
func Test(ctx context.Context, config Config) (*Report, error) {
	report := &Report{
		SuiteVersion: Version, Executable: config.Executable, Platform: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.GOMAXPROCS(0),
		Started: time.Now().UTC(), Digest: digest(config.Executable),
	}
	wanted, err := withNeeds(config.Checks)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	s, err := newSubject(config)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	// Close it even if a check panics.
	closed := sync.OnceValue(s.close)
	defer func() { _ = closed() }()
	ended := make(map[string]Status)
	for _, check := range Checks() {
		if len(wanted) > 0 && !wanted[check.ID] {
			result := newResult(check)
			result.Status, result.Reason = NotRun, "it was not asked for"
			report.Results = append(report.Results, result)
			continue
		}
		if config.Began != nil && ctx.Err() == nil {
			config.Began(check)
		}
		result := s.result(ctx, check, ended)
		ended[check.ID] = result.Status
		report.Results = append(report.Results, result)
		if config.Ended != nil {
			config.Ended(result)
		}
	}
	if err := closed(); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	report.Plugin, report.PluginVersion = limits.Clean(s.manifest.GetName()), limits.Clean(s.manifest.GetVersion())
	report.Figures, report.Blocked = s.figures, s.blocked
	report.Seconds = time.Since(report.Started).Seconds()
	report.judge()
	return report, nil
}

// lacksSandbox is why a check that needs a sandbox is not run.
const lacksSandbox = "the suite has no sandbox: set Config.Reeved to the path of reeved (`reeve plugin test` expects it in its own directory)"

// Run runs the suite in a test of the plugin's own module, with a subtest for each check. Without reeved, the checks that need a sandbox are skipped,
// as usual for Go tests; a report would be incomplete.
func Run(t *testing.T, config Config) {
	t.Helper()
	report, err := Test(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.Check, func(t *testing.T) {
			if result.Reason == lacksSandbox {
				t.Skip(result.Reason)
			}
			switch result.Status {
			case Fail, NotRun:
				t.Errorf("%s\n%s: %s", result.Sentence, result.Status, result.Reason)
			case Skip:
				t.Skip(result.Reason)
			case Pass:
			}
		})
	}
}

func newResult(of Check) Result {
	return Result{Check: of.ID, Group: of.Group, Profile: of.Profile, Sentence: of.Sentence}
}

// result runs a check if it must run.
func (s *subject) result(ctx context.Context, check Check, ended map[string]Status) (result Result) {
	result = newResult(check)
	if ctx.Err() != nil {
		result.Status, result.Reason = NotRun, "the run was interrupted"
		return result
	}
	if check.absent != nil && s.manifest != nil { // absence does not depend on other results
		if why := check.absent(s.manifest); why != "" {
			result.Status, result.Reason = Skip, why
			return result
		}
	}
	if check.sandbox && s.config.Reeved == "" {
		result.Status, result.Reason = NotRun, lacksSandbox
		return result
	}
	if n := slices.IndexFunc(check.needs, func(id string) bool { return ended[id] != Pass && ended[id] != Skip }); n >= 0 {
		result.Status, result.Reason = NotRun, "it needs "+check.needs[n]
		return result
	}
	if check.storage && s.config.Store == nil {
		result.Status, result.Reason = NotRun, "the suite was given no consensus store: set Config.Store (package store has one)"
		return result
	}
	began := time.Now()
	found, err := s.attempt(ctx, check)
	result.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		result.Status, result.Reason = NotRun, "the run was interrupted"
	case cannot(err):
		result.Status, result.Reason = NotRun, tidy(err.Error())
	case err != nil:
		result.Status, result.Reason = Fail, tidy(err.Error())
	default:
		result.Status, result.Reason = Pass, tidy(found)
	}
	return result
}

// attempt runs a check and ends everything that it started.
func (s *subject) attempt(ctx context.Context, check Check) (found string, err error) {
	defer func() {
		// roletest's host reports its failures like a test, by a panic.
		if cause := recover(); cause != nil {
			failed, ok := cause.(hostError)
			if !ok {
				panic(cause)
			}
			err = failed
		}
		err = errors.Join(err, s.endAll(), s.clearStore(context.WithoutCancel(ctx)))
	}()
	return check.run(ctx, s)
}

// tidy makes a text fit for a report: it may come from the plugin.
func tidy(text string) string {
	return limits.Cut(limits.Clean(strings.ReplaceAll(text, "\n", "; ")), maxReason)
}

// digest returns the digest of a file; empty if it cannot be read.
func digest(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// absolute returns an absolute path, for processes with another working directory.
func absolute(path string) (string, error) {
	if path == "" {
		return "", errors.New("no executable is named")
	}
	return filepath.Abs(path)
}
