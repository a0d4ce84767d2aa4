package command

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/attest"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/plainfile"
)

// longestReason is how much of what a check has to say is in a signed report, in bytes: there are many, and the cluster keeps the report.
const longestReason = 240

// longestName is how much of the name of a file is in it.
const longestName = 255

// signing is what signs the report of a run, and where the report goes.
type signing struct {
	file string
	key  ed25519.PrivateKey
	// configurations are those that the caller gave, as they were before the run.
	configurations []attest.Configuration
	arguments      []string
}

// newSigning reads all that is needed to sign the report of a run, before the run: it takes a minute. Nil: no report is asked for.
func (c *commands) newSigning(options testOptions) (*signing, error) {
	file, keyFile := options.report, options.key
	if file == "" {
		if keyFile != "" {
			return nil, fault.New(fault.Usage, "--key signs a report, and --report is missing", "Give --report FILE, or leave --key out.")
		}
		return nil, nil
	}
	if keyFile == "" {
		var err error
		if keyFile, err = c.options.KeyFile(); err != nil || keyFile == "" {
			return nil, fault.New(fault.Usage, "no key was given to sign the report", "Give the file with your private key: --key FILE. `reeve operator key FILE` makes one.")
		}
	}
	s := &signing{file: file}
	var err error
	if s.key, err = keyfile.Read(keyFile, "the key that signs the report", "--key"); err != nil {
		return nil, err
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return nil, fault.New(fault.NotFound, "there is no directory "+filepath.Dir(file)+" for the report", "Make it first, or give another file.")
	}
	for _, configuration := range options.configurations {
		role, path, _ := strings.Cut(configuration, "=")
		digest, err := digestOf(path)
		if err != nil {
			return nil, fault.Wrap(fault.NotFound, err, "cannot read the configuration of role "+role, "Give a file with --configuration ROLE=FILE.")
		}
		s.configurations = append(s.configurations, attest.Configuration{Role: role, Digest: digest})
		s.arguments = append(s.arguments, "--configuration", role+"="+line(filepath.Base(path), longestName))
	}
	for _, check := range options.checks {
		s.arguments = append(s.arguments, "--check", check)
	}
	if words := len(s.command("")); words > attest.MaxArguments {
		return nil, fault.New(fault.Usage, fmt.Sprintf("a report holds the command that repeats the run, in at most %d words, and this one has %d", attest.MaxArguments, words),
			"Give fewer --check and --configuration, or leave --report out.")
	}
	return s, nil
}

// write signs what a run has found of an executable and puts it in the place of the file, in one step.
func (s *signing) write(executable string, found output.Conformance) error {
	now, err := digestOf(executable)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the report was not written: cannot read the executable", "")
	}
	if now != found.Digest {
		return fault.New(fault.Failed, executable+" was changed while it was tested: no report was written", "Test it again.")
	}
	report := signedReport(executable, found)
	report.Configurations = s.configurations
	report.Reproduce = s.command(report.File)
	envelope, err := attest.Sign(report, s.key)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "cannot sign the report", "")
	}
	if err := renameio.WriteFile(s.file, envelope, 0o644, renameio.WithTempDir(filepath.Dir(s.file))); err != nil {
		return fault.Wrap(fault.Failed, err, "cannot write the report", "Give another file with --report.")
	}
	return nil
}

// command is the command that repeats the run on an executable with this name.
func (s *signing) command(file string) []string {
	return append([]string{"reeve", "plugin", "test", file}, s.arguments...)
}

// signedReport is what is signed of what a run has found.
func signedReport(executable string, found output.Conformance) *attest.Report {
	system, architecture, _ := strings.Cut(found.Platform, "/")
	report := &attest.Report{File: line(filepath.Base(executable), longestName), Digest: found.Digest, Conformance: attest.Conformance{
		SuiteVersion: found.SuiteVersion, Plugin: found.Plugin, PluginVersion: found.PluginVersion, Seconds: found.Seconds,
		Machine: attest.Machine{OS: system, Architecture: architecture, Processors: found.Processors, Kernel: kernel()},
	}}
	if found.Started != nil {
		report.Started = found.Started.UTC().Truncate(time.Second)
	}
	for _, verdict := range found.Verdicts {
		report.Profiles = append(report.Profiles, attest.Profile(verdict))
	}
	for _, result := range found.Results {
		report.Checks = append(report.Checks, attest.Check{
			Check: result.Check, Profile: result.Profile, Status: result.Status, Reason: line(result.Reason, longestReason), Seconds: result.Seconds,
		})
	}
	return report
}

// line makes a text one line of at most size bytes.
func line(text string, size int) string { return limits.Cut(limits.Clean(text), size) }

// kernel is the release of the kernel; empty: it does not say.
func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return line(unix.ByteSliceToString(name.Release[:]), longestName)
}

// digestOf is the digest of a file's bytes.
func digestOf(path string) (string, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
