package credential

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// retry is the wait before what failed is tried again, and renewRetry that before credentials are asked for again while the present ones are good.
	retry      = time.Second
	renewRetry = time.Minute
	// IssueTime is how long one try to be given credentials may take.
	IssueTime = 20 * time.Second
)

// Dial connects to any instance of kubernetes-pki, each call of a connection that was lost to another one.
func Dial(host *role.Host) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+pki.RoleName, grpc.WithTransportCredentials(role.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return host.Dial(ctx, pki.RoleName, "", pki.Endpoint)
		}))
}

// Host is what a Keeper tells. A *role.Host is one.
type Host interface {
	Degraded(reason string)
	Logger() hclog.Logger
	SetValue(name, value string)
}

// Keeper keeps the credentials of a role new.
type Keeper struct {
	Host Host
	// Fetch asks for credentials and writes their files.
	Fetch func(ctx context.Context) (Granted, error)
	// Told is the newest trust revision that an instance of kubernetes-pki has announced. Revisions only grow. The instance that Fetch asks may be behind the one that announced, or ahead of it.
	Told *event.Value[uint64]
	// StartAnew is called when what programs read only when they start is another than it was, and reports whether ctx is not done.
	StartAnew func(ctx context.Context, revision uint64) bool
}

// First gets credentials for the first time, as often as it takes. It returns false if ctx was done before that.
func (k *Keeper) First(ctx context.Context) (Granted, bool) {
	for told := ""; ctx.Err() == nil; {
		got, err := k.Fetch(ctx)
		if err == nil {
			return got, true
		}
		if ctx.Err() == nil {
			k.Host.Degraded("there are no certificates yet: " + err.Error())
			if told != err.Error() {
				told = err.Error()
				k.Host.Logger().Warn("there are no certificates yet; they are asked for again", "error", err)
			}
		}
		sleep(ctx, retry)
	}
	return Granted{}, false
}

// Renew gets new credentials whenever it is time, or the authorities have changed, until ctx is done. It says with which trust the node works.
func (k *Keeper) Renew(ctx context.Context, got Granted) {
	k.Host.SetValue(pki.TrustValue, pki.FormatRevision(got.Revision))
	for changed := false; k.awaitDue(ctx, got); {
		next, err := k.Fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait := renewRetry
			if told, _ := k.Told.Get(); told > got.Revision {
				wait = retry
			}
			k.Host.Logger().Warn("no new certificates yet; the present ones are used on", "error", err, "again in", wait)
			sleep(ctx, wait)
			continue
		}
		changed = changed || next.AtStart != got.AtStart
		got = next
		if told, ok := k.Told.Get(); ok && told > got.Revision {
			// It was another instance than the one that told, and has not seen the newest yet.
			sleep(ctx, retry)
			continue
		}
		if changed {
			k.Host.Logger().Info("what programs read only when they start has changed with the authorities of Kubernetes: those are started anew", "revision", got.Revision)
			if !k.StartAnew(ctx, got.Revision) {
				return
			}
			changed = false
		}
		k.Host.SetValue(pki.TrustValue, pki.FormatRevision(got.Revision))
	}
}

// awaitDue waits until there have to be other credentials than these, and reports whether ctx is not done then.
func (k *Keeper) awaitDue(ctx context.Context, got Granted) bool {
	for told := k.Told.Watch(); ; {
		revision, ok := told.Latest()
		// In steps: the clock of the machine may be set.
		left := time.Until(got.Again)
		if left <= 0 || ok && revision > got.Revision {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(min(left, renewRetry))
		select {
		case <-ctx.Done():
		case <-told.Changed():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// sleep waits, and reports whether ctx is not done then.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
