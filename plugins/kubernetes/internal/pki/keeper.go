package pki

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/event"
)

// teller is what is told how the role is: a *role.Host is one.
type teller interface {
	Ready()
	Degraded(reason string)
	SetValue(name, value string)
	Logger() hclog.Logger
}

// keeper keeps the authorities in memory as the store has them.
type keeper struct {
	kv      store
	host    teller
	current event.Value[*authorities]
}

// await opens the authorities, and tries again until it can or is to stop: what the store refuses or holds, somebody may mend.
func (k *keeper) await(ctx context.Context) error {
	for told := ""; ; {
		call, cancel := context.WithTimeout(ctx, storeTime)
		all, err := open(call, k.kv)
		cancel()
		if err == nil {
			k.take(all)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.host.Degraded("the authorities of Kubernetes cannot be opened: " + err.Error())
		if told != err.Error() {
			told = err.Error()
			k.host.Logger().Warn("the authorities of Kubernetes cannot be opened; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry):
		}
	}
}

// take has others work with what was read.
func (k *keeper) take(all *authorities) {
	former, ok := k.current.Get()
	if ok && former.revision == all.revision {
		return
	}
	k.current.Set(all)
	k.host.SetValue(TrustValue, FormatRevision(all.revision))
	if ok {
		k.host.Logger().Info("the authorities of Kubernetes have changed", "rotation", phaseName(all.phase), "revision", all.revision)
	}
}

var errGone = errors.New("it holds none any more: restore it from a backup")

// follow has what the store holds after each change of it, until ctx is done. It also asks every now and then, and says that the role is Degraded while the store does not answer or holds what cannot
// be used: the present authorities sign on, but the role could not start again, and who looks at the cluster is to see why.
func (k *keeper) follow(ctx context.Context) {
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	// Beside: to begin a watch takes as long as the store is away.
	watching.Go(func() { k.watch(ctx, changed) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(lookEvery):
		}
		asked, cancel := context.WithTimeout(ctx, lookTime)
		all, err := load(asked, k.kv)
		cancel()
		if err == nil && all == nil {
			err = errGone
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			k.host.Degraded("the authorities of Kubernetes are not in the consensus store as they should be: " + err.Error())
		default:
			k.take(all)
			k.host.Ready()
		}
	}
}

// watch says when something was changed in the store, until ctx is done. What is missed between two watches, or before the first one, is found by asking.
func (k *keeper) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		for range k.kv.Watch(ctx, "", clientv3.WithPrefix()) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}
