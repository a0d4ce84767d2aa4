package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// checkHealth asks the role's own HTTP server, on its own socket. That the store is away is not asked: a new process would not bring it back.
func (l *lighthouse) checkHealth(ctx context.Context) error {
	burning := l.light.Load()
	if burning == nil {
		return nil // it waits for the store, and says so
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lighthouse/healthz", nil)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", burning.socket)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the HTTP server does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the HTTP server answers %s", response.Status)
	}
	return nil
}

// askAgain is how long the role waits before it asks the store again whether it is there.
const askAgain = 2 * time.Second

// condition is what the role says of itself: a *role.Host has it.
type condition interface {
	Ready()
	Degraded(reason string)
}

// watchStore says that the role is Degraded while the store does not answer: nobody can count then, and who looks at the cluster is to see why.
func (l *light) watchStore(ctx context.Context, host condition) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
		asked, cancel := context.WithTimeout(ctx, storeTime)
		_, err := l.counter.read(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			host.Degraded("the consensus store does not answer: " + err.Error())
		default:
			host.Ready()
		}
	}
}

// metrics writes what the node shows among its own metrics, with labels that say whose they are.
func (l *lighthouse) metrics(ctx context.Context, to io.Writer) error {
	burning := l.light.Load()
	if burning == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if _, err := fmt.Fprintf(to, "# HELP lighthouse_unanswered_total Requests that could not be answered.\n"+
		"# TYPE lighthouse_unanswered_total counter\nlighthouse_unanswered_total %d\n", burning.unanswered.Load()); err != nil {
		return err
	}
	count, err := burning.counter.read(ctx)
	if err != nil {
		return nil // a value that is not known is left out; the others are not
	}
	_, err = fmt.Fprintf(to, "# HELP lighthouse_count The count that the store holds.\n# TYPE lighthouse_count gauge\nlighthouse_count %d\n", count)
	return err
}
