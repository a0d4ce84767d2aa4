package steps_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
	"github.com/reeveproject/reeve/sdk/checkpoint/steptest"
)

func TestAllAreAll(t *testing.T) { steptest.AllAreAll(t, steps.All(), isChange) }

// isChange reports whether a step is that of a change, of which Update takes the one by its name.
func isChange(step checkpoint.Step) bool {
	words := strings.Split(string(step), "-")
	for n, word := range words {
		words[n] = strings.ToUpper(word[:1]) + word[1:]
	}
	name := strings.Join(words, "")
	if name == "RotateCa" {
		name = "RotateCA"
	}
	return steps.Change(name) == step || step == steps.OtherChange
}
