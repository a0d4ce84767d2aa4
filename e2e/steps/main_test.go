package steps_test

import (
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared suite.Suite

func TestMain(m *testing.M) { shared.Main(m, "../..", "rs") }
