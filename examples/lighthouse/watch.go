package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
