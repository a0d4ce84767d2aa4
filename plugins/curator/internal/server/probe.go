package server

import (
	"context"
	"fmt"
	"time"
)

// probeEvery is how often the store is asked whether it answers. A client library that reconnects for ever says nothing of a store that is
// gone, and a node's status should tell within seconds.
const probeEvery = 2 * time.Second

// Prober is asked for a linearizable answer: a *store.Store.
type Prober interface {
	Probe(ctx context.Context) (epoch uint64, err error)
}

// probe tells the condition and the health whether the store answers, until ctx is done.
func probe(ctx context.Context, store Prober, config Config, condition *condition) {
	every := config.ProbeEvery
	if every == 0 {
		every = probeEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	well := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		epoch, err := store.Probe(ctx)
		if ctx.Err() != nil {
			return
		}
		config.Health.probed(epoch, err)
		switch {
		case err != nil && well:
			well = false
			config.Log.Warn("the consensus store does not answer", "error", err)
			condition.set(ofStore, fmt.Sprintf("%v; the cluster API answers Unavailable until it does", err))
		case err == nil && !well:
			well = true
			config.Log.Info("the consensus store answers again")
			condition.set(ofStore, "")
		}
	}
}
