package genesis

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/reeveproject/reeve/proto/attest"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// AddReports adds the signed conformance reports in a directory to a genesis catalog. One key must have signed all of them; the catalog then names
// it. It returns the files that are about other executables, such as those of an earlier build.
func AddReports(g *nodev1.Genesis, directory string) (others []string, err error) {
	files, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("genesis: %w", err)
	}
	for _, file := range files {
		path := filepath.Join(directory, file.Name())
		envelope, err := readReport(path)
		if err != nil {
			return nil, fmt.Errorf("genesis: the report %s: %w", path, err)
		}
		signed, err := attest.Open(envelope)
		if err != nil {
			return nil, fmt.Errorf("genesis: the report %s: %w", path, err)
		}
		report, err := signed.Verify(signed.Key)
		if err != nil {
			return nil, fmt.Errorf("genesis: the report %s: %w", path, err)
		}
		if digestOwner(g.GetPlugins(), report.Digest) == nil {
			others = append(others, path)
			continue
		}
		if g.ReportsKey == nil {
			g.ReportsKey = signed.Key
		}
		g.Reports = append(g.Reports, envelope)
	}
	if err := errors.Join(checkReports(g)...); err != nil {
		return nil, fmt.Errorf("genesis: %w", err)
	}
	return others, nil
}

func readReport(path string) ([]byte, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limits.Attestation+1))
}

// checkReports returns the problems of a catalog's reports.
func checkReports(g *nodev1.Genesis) (problems []error) {
	if n := len(g.GetReportsKey()); n > 0 != (len(g.GetReports()) > 0) || n > 0 && n != ed25519.PublicKeySize {
		return []error{fmt.Errorf("reports_key: it has %d bytes and there are %d reports: with reports it must have %d bytes, without none", n, len(g.GetReports()), ed25519.PublicKeySize)}
	}
	seen := make(map[string]bool)
	for i, envelope := range g.GetReports() {
		report, err := read(envelope, g.GetReportsKey())
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("reports[%d]: %w", i, err))
		case digestOwner(g.GetPlugins(), report.Digest) == nil:
			problems = append(problems, fmt.Errorf("reports[%d]: it is about %s, which is not one of the plugins", i, report.Digest))
		case seen[report.Digest]:
			problems = append(problems, fmt.Errorf("reports[%d]: there is another one about %s", i, report.Digest))
		default:
			seen[report.Digest] = true
		}
	}
	return problems
}

func read(envelope []byte, key ed25519.PublicKey) (*attest.Report, error) {
	signed, err := attest.Open(envelope)
	if err != nil {
		return nil, err
	}
	return signed.Verify(key)
}

// digestOwner returns the plugin that an executable belongs to; nil if none.
func digestOwner(plugins []*clusterv1.PluginRecord, digest string) *clusterv1.PluginRecord {
	for _, record := range plugins {
		for _, of := range record.GetDigests() {
			if of == digest {
				return record
			}
		}
	}
	return nil
}

// ReportsOn returns the catalog's reports about executables of some plugins.
func ReportsOn(g *nodev1.Genesis, plugins []*clusterv1.PluginRecord) [][]byte {
	return slices.DeleteFunc(slices.Clone(g.GetReports()), func(envelope []byte) bool {
		report, err := read(envelope, g.GetReportsKey())
		return err != nil || digestOwner(plugins, report.Digest) == nil
	})
}
