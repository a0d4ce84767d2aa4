package store_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(formHelper) != "" {
		runFormHelper()
		return
	}
	goleak.VerifyTestMain(m)
}
