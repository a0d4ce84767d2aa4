package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	seed := flag.String("seed", "", "the seed of the run")
	modules := flag.String("modules", "", "the import paths of modules of which tests must have run")
	flag.Parse()
	if !judge(".", flag.Args(), strings.Fields(*modules), *seed, os.Stdout) {
		os.Exit(1)
	}
}

// judge reports on tiers that were run in the workspace of a directory, and returns whether everything is well.
func judge(root string, tiers, modules []string, seed string, out io.Writer) bool {
	var total tally
	results := filepath.Join(root, "var", "test")
	for _, tier := range tiers {
		if err := total.readFile(filepath.Join(results, tier+".json")); err != nil {
			total.problem("the tests of the tier %s: %v", tier, err)
		}
	}
	total.checkModules(modules)
	total.printTables(filepath.Join(results, "tables"), out)
	known, err := os.ReadFile(filepath.Join(root, "docs", "flaky.md"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		total.problem("the flaky tests that are known: %v", err)
	}
	for _, tier := range tiers {
		// `make` leaves the file if gotestsum ended with an error.
		if _, err := os.Stat(filepath.Join(results, tier+".failed")); err == nil && len(total.problems)+len(total.with("fail")) == 0 {
			total.problem("gotestsum failed in the tier %s, and no test tells why: see what it printed", tier)
		}
	}
	return total.print(out, string(known), seed)
}
