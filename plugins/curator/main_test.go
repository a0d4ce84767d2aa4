package main

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// The curator must take its own plugin into the catalog.
func TestManifest(t *testing.T) {
	manifest, err := plugin().Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if problems := rules.Manifest("manifest", manifest); len(problems) > 0 {
		t.Error(problems)
	}
}
