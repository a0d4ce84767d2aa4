package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// attemptTime bounds one reading and replacing of the file, which takes milliseconds unless the core is away.
	attemptTime = 10 * time.Second
	// collisions is how often in a row the file may be changed by somebody else between reading and replacing it, before that counts as
	// an error.
	collisions = 10
	// recheck is how often the file is looked at though the directory is the same: other programs rewrite hosts files too, and drop the
	// block. There is no notice of that through the host.
	recheck = time.Minute
	// firstRetry and lastRetry bound the wait after an attempt that failed; it doubles in between.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// removeTime bounds the removal of the block when the role is stopped, below the 10 s that a role has by default. It takes milliseconds; a
	// core that is dead is not waited for, and the role that the next one starts takes the block over.
	removeTime = 8 * time.Second
)

// Host is what the role needs of its host: a *role.Host has it.
type Host interface {
	Configuration() []byte
	Grants() []role.Grant
	Logger() hclog.Logger
	Directory() *event.Value[*hostv1.Directory]
	ReadFile(ctx context.Context, path string) (content []byte, digest string, err error)
	ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, err error)
	Ready()
	Degraded(reason string)
}

// Run keeps the block until ctx is done, and then removes it. It is Ready when the file is as it should be, and Degraded while it
// cannot be written.
func Run(ctx context.Context, host Host) error {
	configuration, err := ParseConfiguration(host.Configuration())
	if err != nil {
		return err
	}
	k := &keeper{host: host, path: configuration.File(host.Grants())}
	k.keep(ctx)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := k.rewrite(ctx, block.Remove); err != nil {
		return fmt.Errorf("the block was not removed: %w", err)
	}
	return nil
}

type keeper struct {
	host Host
	path string
}

// keep follows the directory until ctx is done.
func (k *keeper) keep(ctx context.Context) {
	watcher := k.host.Directory().Watch()
	directory, err := watcher.Next(ctx)
	retry := firstRetry
	for err == nil {
		wait := recheck
		if problem := k.write(ctx, directory); problem == nil {
			k.host.Ready()
			retry = firstRetry
		} else if ctx.Err() == nil {
			k.host.Logger().Error("the hosts file was not written", "path", k.path, "error", problem, "retry", retry)
			k.host.Degraded(problem.Error())
			wait, retry = retry, min(2*retry, lastRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-watcher.Changed():
			// The newest there is: Next does not wait.
			directory, err = watcher.Next(ctx)
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (k *keeper) write(ctx context.Context, directory *hostv1.Directory) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	return k.rewrite(ctx, func(content []byte) []byte { return block.Write(content, entries(directory)) })
}

// rewrite replaces the file's content by what change makes of it. If somebody else changes the file at the same time, it begins again with what
// they have written.
func (k *keeper) rewrite(ctx context.Context, change func([]byte) []byte) error {
	var err error
	for range collisions {
		var content []byte
		var digest string
		content, digest, err = k.host.ReadFile(ctx, k.path)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return k.explain(err)
		}
		changed := change(content)
		if bytes.Equal(changed, content) {
			return nil
		}
		if _, err = k.host.ReplaceFile(ctx, k.path, digest, changed); err == nil {
			k.host.Logger().Info("the hosts file was written", "path", k.path)
			return nil
		}
		if !errors.Is(err, role.ErrFileChanged) {
			return k.explain(err)
		}
	}
	return fmt.Errorf("%s is changed by others all the time: %w", k.path, err)
}

func (k *keeper) explain(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the role may not replace %s: grant it replace-file with this path, or configure the path that it is granted: %w", k.path, err)
	}
	return err
}
