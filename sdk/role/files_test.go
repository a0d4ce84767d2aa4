package role_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// files runs within the role: it reports the first thing that is not as it should be.
func files(ctx context.Context, host *role.Host) error {
	check := func(what string, ok bool, err error) error {
		if !ok {
			return errors.New(what + ": " + errorText(err))
		}
		return nil
	}
	_, _, err := host.ReadFile(ctx, file)
	if err := check("a file that is not there", errors.Is(err, fs.ErrNotExist), err); err != nil {
		return err
	}
	_, _, err = host.ReadFile(ctx, "/etc/shadow")
	if err := check("a file that is not granted", errors.Is(err, fs.ErrPermission), err); err != nil {
		return err
	}
	digest, inPlace, err := host.ReplaceFile(ctx, file, "", []byte("one"))
	if err := check("a new file", err == nil && !inPlace, err); err != nil {
		return err
	}
	_, _, err = host.ReplaceFile(ctx, file, "", []byte("two"))
	if err := check("a file that is there unexpectedly", errors.Is(err, role.ErrFileChanged), err); err != nil {
		return err
	}
	_, _, err = host.ReplaceFile(ctx, file, digest, []byte("two"))
	if err := check("a file that is as it was read", err == nil, err); err != nil {
		return err
	}
	content, _, err := host.ReadFile(ctx, file)
	if err := check("what was written", string(content) == "two", err); err != nil {
		return err
	}
	digest, inPlace, err = host.ReplaceFile(ctx, mountedFile, "", []byte("one"))
	if err := check("a mounted file", inPlace && digest != "", err); err != nil {
		return err
	}
	_, digest, err = host.ReadFile(ctx, file)
	large := bytes.Repeat([]byte("0.0.0.0 blocked\n"), 1<<16)
	for range 3 {
		if err == nil {
			digest, _, err = host.ReplaceFile(ctx, file, digest, large)
		}
		if err := check("a large file", err == nil, err); err != nil {
			return err
		}
		var read string
		content, read, err = host.ReadFile(ctx, file)
		if err := check("what a large file holds", bytes.Equal(content, large) && read == digest, err); err != nil {
			return err
		}
		large = append(append(bytes.Clone(large), "mine\n"...), large[:1<<19]...)
	}
	_, _, err = host.ReplaceFile(ctx, file, "sha256:old", large)
	if err := check("a large file that has changed", errors.Is(err, role.ErrFileChanged), err); err != nil {
		return err
	}
	err = host.AwaitFile(ctx, file, "sha256:old")
	if err := check("a file that changed", err == nil, err); err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = host.AwaitFile(ended, file, digest)
	if err := check("a file that stays", errors.Is(err, context.Canceled), err); err != nil {
		return err
	}
	_, _, err = host.ReadFile(ended, file)
	if err := check("a context that has ended", errors.Is(err, context.Canceled), err); err != nil {
		return err
	}
	return wait(ctx, host)
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func TestFiles(t *testing.T) {
	host := roletest.NewHost(t)
	host.SetFile(file, nil)
	host.SetFile(mountedFile, nil)
	host.MountFile(mountedFile)
	process := start(t, host, "probe", `{"do": "files"}`)
	now := process.Await("ready or failed", func(now *rolev1.WatchResponse) bool {
		return now.GetState() != rolev1.RoleState_ROLE_STATE_STARTING
	})
	if now.GetState() != rolev1.RoleState_ROLE_STATE_READY {
		t.Fatal(now.GetReason())
	}
}
