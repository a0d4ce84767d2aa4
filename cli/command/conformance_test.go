package command_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/cli/output"
)

// fakeSuite stands in for the program of the conformance suite: what it reports is in the name of the plugin's file.
func fakeSuite(arguments []string) int {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	signal.Ignore(syscall.SIGINT)
	file := arguments[len(arguments)-1]
	for _, argument := range arguments {
		if argument == "-progress" {
			fmt.Fprintln(os.Stderr, "pass     handshake.line\x1b[2J")
		}
	}
	status, verdict, code := "pass", "conforms", 0
	switch filepath.Base(file) {
	case "bad":
		status, verdict, code = "fail", "does not conform", 1
	case "none":
		fmt.Fprintln(os.Stderr, "reeve-conformance: no room is left")
		return 2
	case "garbage":
		fmt.Println("{")
		return 0
	case "waits":
		status, verdict, code = "not run", "incomplete", 1
		select {
		case <-terminate:
		case <-closed(os.Stdin):
		}
		if err := os.WriteFile("ended", nil, 0o600); err != nil {
			return 2
		}
	}
	began := scriptTime("").UTC()
	report := output.Conformance{
		SuiteVersion: "0.1.0", Executable: file, Plugin: "hello", PluginVersion: "0.1.0", Platform: "linux/amd64", Processors: 2, Started: &began,
		Results: []output.CheckResult{{
			Check: "handshake.line", Group: "handshake", Profile: "core", Sentence: "It prints a line.", Status: status, Reason: strings.Join(arguments, " "),
		}},
		Verdicts: []output.ProfileVerdict{{Profile: "core", Verdict: verdict}},
	}
	if filepath.Base(file) == "some" {
		report.Verdicts[0].Verdict = "incomplete"
		report.Results = append(report.Results, output.CheckResult{Check: "handshake.socket", Group: "handshake", Profile: "core", Status: "not run", Reason: "it was not asked for"})
		if slices.Contains(arguments, "handshake.socket") && slices.Contains(arguments, "handshake.line") {
			report.Results[1].Status, report.Results[1].Reason = "pass", ""
		}
	}
	if content, err := os.ReadFile(file); err == nil {
		report.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	}
	if filepath.Base(file) == "changes" {
		if err := os.WriteFile(file, []byte("changed\n"), 0o755); err != nil {
			return 2
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 2
	}
	return code
}

// closed is closed when a file has ended.
func closed(file *os.File) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, file)
		close(ended)
	}()
	return ended
}
