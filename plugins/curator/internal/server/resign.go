package server

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

// newServing gets this curator its first certificate. A store that does not answer in time answers later; a curator that gave up would be started again for that,
// and be Failed after some times, though nothing is wrong but that its machine is slow.
func newServing(ctx context.Context, records *store.Store, config Config) (*ca.Serving, error) {
	pause := backoff.NewExponentialBackOff()
	for {
		serving, err := ca.NewServing(ctx, records, config.NodeID, config.Role, config.Now, noted(records, config))
		var away *store.UnavailableError
		if !errors.As(err, &away) || ctx.Err() != nil {
			return serving, err
		}
		wait := pause.NextBackOff()
		config.Log.Warn("this curator cannot issue its own SVID yet", "error", err, "again_in", wait.Round(time.Millisecond))
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// resign has this curator serve with a certificate of the cluster CA that signs, as soon as that is another one, until ctx is done.
func resign(ctx context.Context, snapshots *event.Value[*cache.Snapshot], serving *ca.Serving, log hclog.Logger) {
	pause := backoff.NewExponentialBackOff()
	for watcher := snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return
		}
		for len(snapshot.CA) > 0 {
			changed, err := serving.Follow(ctx, snapshot.CA[0])
			if changed {
				log.Info("the cluster CA that signs is another one, and this curator serves with a certificate of it")
			}
			if err == nil || ctx.Err() != nil {
				pause.Reset()
				break
			}
			wait := pause.NextBackOff()
			log.Warn("this curator cannot get a certificate of the cluster CA that signs now", "error", err, "again_in", wait.Round(time.Millisecond))
			if !sleep(ctx, wait) {
				return
			}
			snapshot, _ = watcher.Latest()
		}
	}
}

// sleep reports whether ctx is not done after a while.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// noted keeps the certificate with which this curator serves in the list of those in use, and has the metrics know it. That it cannot be kept is no reason not to serve.
func noted(records *store.Store, config Config) func(ctx context.Context, certificate []byte, lifetime time.Duration) {
	return func(ctx context.Context, certificate []byte, _ time.Duration) {
		config.Metrics.SVID(certificate)
		issued := store.Issued{Node: config.NodeID, Role: config.Role, Curator: true, Certificate: certificate}
		if _, err := records.NoteIssued(ctx, issued); err != nil && ctx.Err() == nil {
			config.Log.Warn("the certificate of this curator is not in the list of those in use", "error", err)
		}
	}
}
