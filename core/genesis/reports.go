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
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// AddReports puts the signed reports of the conformance suite that are in the files of a directory into a genesis catalog. All of them must be signed by one key, which
// the catalog then names. It returns the files that are about other executables: those of an earlier build.
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
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limits.Attestation+1))
}

// checkReports returns what is wrong with the reports of a catalog.
func checkReports(g *nodev1.Genesis) (problems []error) {
	if n := len(g.GetReportsKey()); n > 0 != (len(g.GetReports()) > 0) || n > 0 && n != ed25519.PublicKeySize {
		return []error{fmt.Errorf("reports_key: it has %d bytes, and there are %d reports: the key that signed the reports has %d", n, len(g.GetReports()), ed25519.PublicKeySize)}
	}
	seen := make(map[string]bool)
	for i, envelope := range g.GetReports() {
		report, err := read(envelope, g.GetReportsKey())
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("reports[%d]: %w", i, err))
		case digestOwner(g.GetPlugins(), report.Digest) == nil:
			problems = append(problems, fmt.Errorf("reports[%d]: it is about %s, which is none of the plugins", i, report.Digest))
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

// digestOwner is the plugin that has an executable; nil: none has.
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

// ReportsOn returns the reports of a catalog that are about executables of some plugins.
func ReportsOn(g *nodev1.Genesis, plugins []*clusterv1.PluginRecord) [][]byte {
	return slices.DeleteFunc(slices.Clone(g.GetReports()), func(envelope []byte) bool {
		report, err := read(envelope, g.GetReportsKey())
		return err != nil || digestOwner(plugins, report.Digest) == nil
	})
}
