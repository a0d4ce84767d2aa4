//go:build soak

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
)

// suite is what all tests share. It is set before the first of them.
var suite struct {
	base *machine.Base
	// lacking is why there are no machines; nil: there are.
	lacking *machine.MissingError
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "vm")
	if err == nil {
		defer func() { _ = os.RemoveAll(directory) }()
		err = setUp(context.Background(), directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/vm:", err)
		return 1
	}
	return m.Run()
}

func setUp(ctx context.Context, directory string) error {
	workspace, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	suite.base, err = machine.NewBase(ctx, workspace, filepath.Join(workspace, "var", "vm"), directory)
	if errors.As(err, &suite.lacking) {
		return nil
	}
	return err
}
