package luks_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/reeveproject/reeve/core/storage/luks"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func TestLife(t *testing.T) {
	needMapper(t)
	n := newNode(t)
	key, raw := newKey(t)
	other, rawOther := newKey(t)
	kind := n.kind()
	wantState(t, kind, volume.Absent)
	timed(t, "format", func() error { return kind.Format(t.Context(), key) })
	wantState(t, kind, volume.Closed)
	must(t, kind.Format(t.Context(), key))
	if err := kind.Open(t.Context(), other); !errors.Is(err, volume.ErrWrongKey) {
		t.Fatalf("opened by another key: %v", err)
	}
	const secret, name = "the secret that nobody else may read", "the-name-of-the-file"
	path := filepath.Join(n.data(), name)
	content := bytes.Repeat([]byte(secret), 1000)
	for round := range 2 {
		timed(t, "open", func() error { return kind.Open(t.Context(), key) })
		must(t, kind.Open(t.Context(), key))
		wantState(t, kind, volume.Open)
		if round == 0 {
			must(t, os.WriteFile(path, content, 0o600))
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("round %d: %d bytes, %v", round, len(got), err)
		}
		timed(t, "close", func() error { return kind.Close(t.Context()) })
		must(t, kind.Close(t.Context()))
		wantState(t, kind, volume.Closed)
		if _, err := os.Stat("/dev/mapper/" + luks.MappingName(nodeID)); err == nil {
			t.Error("the mapping is still there")
		}
	}
	for _, needle := range [][]byte{[]byte(secret), []byte(name), raw, raw[:32], raw[32:]} {
		if found, err := contains(n.file, needle); err != nil || found {
			t.Errorf("the device holds %q: %v", needle, err)
		}
	}
	// The key is changed while it is open, and nothing is rewritten.
	must(t, kind.Open(t.Context(), key))
	timed(t, "rotate", func() error { return kind.Rotate(t.Context(), key, other) })
	must(t, kind.Close(t.Context()))
	if err := kind.Open(t.Context(), key); !errors.Is(err, volume.ErrWrongKey) {
		t.Fatalf("opened by the old key: %v", err)
	}
	_ = rawOther
	must(t, kind.Open(t.Context(), other))
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	must(t, kind.Close(t.Context()))
}

func contains(path string, needle []byte) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	content, err := io.ReadAll(file)
	return bytes.Contains(content, needle), errors.Join(err, file.Close())
}

func TestBusy(t *testing.T) {
	needMapper(t)
	n := newNode(t)
	key, _ := newKey(t)
	kind := n.kind()
	must(t, kind.Format(t.Context(), key))
	must(t, kind.Open(t.Context(), key))
	command := exec.Command("sh", "-c", "cd "+n.data()+"; echo; read x")
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	_, err = output.Read(make([]byte, 1))
	must(t, err)
	err = kind.Close(t.Context())
	var busy *volume.BusyError
	if !errors.As(err, &busy) || len(busy.Users) == 0 || busy.Users[0].PID != command.Process.Pid {
		t.Errorf("closed although in use: %v", err)
	}
	wantState(t, kind, volume.Open)
	must(t, os.WriteFile(filepath.Join(n.data(), "file"), nil, 0o600))
	must(t, input.Close())
	_ = command.Wait()
	must(t, kind.Close(t.Context()))
}

// A process that is killed before any step of any call leaves nothing that the same call, or the opposite one, does not go on from.
func TestKilledAtEveryStep(t *testing.T) {
	needMapper(t)
	n := newNode(t)
	key, raw := newKey(t)
	kind := n.kind()
	steps := func(action string) int {
		output, err := n.call(t, action, raw, raw, 0)
		must(t, err)
		count, err := strconv.Atoi(output)
		if err != nil || count == 0 {
			t.Fatalf("%s took %q steps", action, output)
		}
		return count
	}
	kill := func(action string, step int) {
		t.Helper()
		name, err := n.call(t, action, raw, raw, step)
		if err == nil || name == "" {
			t.Fatalf("%s was not killed at step %d: %q, %v", action, step, name, err)
		}
		t.Logf("%s killed before %s", action, name)
	}
	formats, opens, closes := steps("format"), steps("open"), steps("close")
	for step := 1; step <= formats; step++ {
		run(t, "blkdiscard", "--zeroout", n.device)
		kill("format", step)
		wantState(t, kind, volume.Absent)
		must(t, kind.Format(t.Context(), key))
		must(t, kind.Open(t.Context(), key))
		must(t, kind.Close(t.Context()))
	}
	for step := 1; step <= opens; step++ {
		kill("open", step)
		must(t, kind.Open(t.Context(), key))
		wantState(t, kind, volume.Open)
		must(t, kind.Close(t.Context()))
		kill("open", step)
		must(t, kind.Close(t.Context()))
		wantState(t, kind, volume.Closed)
	}
	for step := 1; step <= closes; step++ {
		must(t, kind.Open(t.Context(), key))
		kill("close", step)
		must(t, kind.Close(t.Context()))
		wantState(t, kind, volume.Closed)
		must(t, kind.Open(t.Context(), key))
		kill("close", step)
		must(t, kind.Open(t.Context(), key))
		wantState(t, kind, volume.Open)
		must(t, kind.Close(t.Context()))
	}
	// Killed while it is open: it is used on by who has no key.
	_, err := n.call(t, "open", raw, raw, 0)
	must(t, err)
	must(t, kind.Open(t.Context(), nil))
	wantState(t, kind, volume.Open)
	must(t, kind.Close(t.Context()))
}
