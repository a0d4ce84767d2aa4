package nodes_test

import (
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared suite.Suite

func TestMain(m *testing.M) { shared.Main(m, "../..", "rn") }

const patience = fleet.Patience
