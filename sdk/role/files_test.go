package role_test

import (
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
	ended, cancel := context.WithCancel(ctx)
	cancel()
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
