package volume_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func sh(script string, key, next *keys.Secret) volume.Program {
	return volume.Program{Name: "sh", Package: "dash", Args: []string{"-c", script}, Key: key, Next: next}
}

func secret(t *testing.T, content string) *keys.Secret {
	t.Helper()
	key, err := keys.SecretOf([]byte(content))
	must(t, err)
	t.Cleanup(key.Destroy)
	return key
}

func TestRun(t *testing.T) {
	t.Setenv("REEVE_TEST_SECRET", "in the environment")
	first, second := secret(t, "the first key"), secret(t, "the second key")
	output, err := sh("cat; echo; cat <&3; echo; env; pwd", first, second).Run(t.Context())
	must(t, err)
	text := string(output)
	if !strings.HasPrefix(text, "the first key\nthe second key\n") || strings.Contains(text, "environment") || !strings.HasSuffix(text, "/\n") {
		t.Errorf("output %q", text)
	}
	// Without keys there is nothing to read.
	if output, err := sh("cat", nil, nil).Run(t.Context()); err != nil || len(output) > 0 {
		t.Errorf("%q, %v", output, err)
	}
}

func TestRunFails(t *testing.T) {
	key := secret(t, "the first key")
	fails := func(script string) *volume.ExitError {
		t.Helper()
		_, err := sh(script, key, nil).Run(t.Context())
		var exit *volume.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("%s: %v", script, err)
		}
		return exit
	}
	if exit := fails(`printf 'no\tway \033[31m\n' >&2; exit 7`); exit.Code != 7 || exit.Program != "sh" || exit.Text != "no way  [31m" {
		t.Errorf("%+v", exit)
	}
	if exit := fails("cat >&2; exit 1"); strings.Contains(exit.Error(), "first") || !strings.Contains(exit.Text, "left out") {
		t.Errorf("the key is in %q", exit)
	}
	if exit := fails("yes x | head -c 1000000 >&2; exit 1"); len(exit.Text) > 600 {
		t.Errorf("%d bytes of text", len(exit.Text))
	}
	if exit := fails("kill -9 $$"); exit.Code != -1 {
		t.Errorf("%+v", exit)
	}
	var missing *volume.MissingProgramError
	_, err := volume.Program{Name: "reeve-no-such-program", Package: "reeve-tools"}.Run(t.Context())
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "apt-get install reeve-tools") {
		t.Errorf("a missing program: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sh("sleep 1000", nil, nil).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a program that is not wanted any more: %v", err)
	}
	destroyed := secret(t, "x")
	destroyed.Destroy()
	if _, err := sh("cat", destroyed, nil).Run(t.Context()); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("a key that is gone: %v", err)
	}
	if content, err := os.ReadFile("/proc/self/cmdline"); err != nil || bytes.Contains(content, []byte("first key")) {
		t.Errorf("%q, %v", content, err)
	}
}
