package steps_test

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint/steptest"
)

func TestAllAreAll(t *testing.T) { steptest.AllAreAll(t, steps.All(), nil) }
