package hostapi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestAwaitFile: whatever another program does to the file is told, however it does it.
func TestAwaitFile(t *testing.T) {
	client, dir, path := fileClient(t)
	other := filepath.Join(dir, "other")
	present := ""
	await := func() <-chan error {
		ended := make(chan error, 1)
		digest := ""
		if present != "" {
			digest = digestOf(present)
		}
		go func() {
			_, err := client.AwaitFile(within(t), &hostv1.AwaitFileRequest{Path: path, Digest: digest})
			ended <- err
		}()
		return ended
	}
	for _, step := range []struct {
		name    string
		do      func() error
		content string
	}{
		{"made", func() error { return os.WriteFile(path, []byte("one"), 0o644) }, "one"},
		{"written", func() error { return os.WriteFile(path, []byte("two"), 0o644) }, "two"},
		{"replaced", func() error { return errors.Join(os.WriteFile(other, []byte("three"), 0o644), os.Rename(other, path)) }, "three"},
		{"removed", func() error { return os.Remove(path) }, ""},
	} {
		ended := await()
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		present = step.content
	}
	// What has changed before is told at once.
	mustWrite(t, path, "four", 0o644)
	if err := <-await(); err != nil {
		t.Error(err)
	}
}

// TestAwaitFileIsBounded: an instance that waits without end keeps four places, and has them again.
func TestAwaitFileIsBounded(t *testing.T) {
	client, _, path := fileClient(t)
	mustWrite(t, path, "one", 0o644)
	ctx, cancel := context.WithCancel(within(t))
	const calls = 5
	ended := make(chan error, calls)
	for range calls {
		go func() {
			_, err := client.AwaitFile(ctx, &hostv1.AwaitFileRequest{Path: path, Digest: digestOf("one")})
			ended <- err
		}()
	}
	mustRefuse(t, <-ended, codes.ResourceExhausted, "wait")
	cancel()
	for range calls - 1 {
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	for {
		_, err := client.AwaitFile(within(t), &hostv1.AwaitFileRequest{Path: path})
		if err == nil {
			break
		}
		// The server hears of the end of a call a little later.
		mustRefuse(t, err, codes.ResourceExhausted)
	}
	_, err := client.AwaitFile(within(t), &hostv1.AwaitFileRequest{Path: path + "x"})
	mustRefuse(t, err, codes.PermissionDenied)
}
