package howto_test

import (
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/lab"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared = suite.Suite{Ordinary: &devcluster.User{UID: 61011, GID: 61011}}

func TestMain(m *testing.M) {
	lab.Main()
	shared.Main(m, "../..", "rw")
}
