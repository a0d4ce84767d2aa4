package histories_test

import (
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared = suite.Suite{Ordinary: &devcluster.User{UID: 61010, GID: 61010}}

func TestMain(m *testing.M) { shared.Main(m, "../..", "rh") }
