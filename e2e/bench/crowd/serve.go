package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// most bounds an answer: the IDs of many nodes.
const most = 4 << 20

// Serve serves a crowd until ctx ends, which the nodes live as long as.
func Serve(ctx context.Context, listener net.Listener, crowd *Crowd) error {
	var one sync.Mutex
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: handler(func(call context.Context, path string, body []byte) (any, error) {
		switch path {
		case "/grow":
			one.Lock()
			defer one.Unlock()
			var count int
			if err := json.Unmarshal(body, &count); err != nil {
				return nil, err
			}
			if err := crowd.Grow(ctx, count); err != nil {
				return nil, err
			}
			return crowd.Nodes(), nil
		case "/expect":
			var wanted Target
			if err := json.Unmarshal(body, &wanted); err != nil {
				return nil, err
			}
			crowd.Expect(wanted)
			return nil, nil
		case "/seen":
			return crowd.Seen(call)
		case "/publish":
			var publish Publishing
			if err := json.Unmarshal(body, &publish); err != nil {
				return nil, err
			}
			lasting, cancel := context.WithTimeout(ctx, publish.For)
			defer cancel()
			return nil, crowd.Publish(lasting, publish.Nodes)
		case "/counted":
			return crowd.Counted(), nil
		}
		return nil, fmt.Errorf("there is no %s", path)
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := server.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	crowd.Wait()
	return err
}

func handler(answer func(ctx context.Context, path string, body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, most))
		if err == nil {
			var answered any
			if answered, err = answer(r.Context(), r.URL.Path, body); err == nil {
				_ = json.NewEncoder(w).Encode(answered) // fails only if the client has gone
				return
			}
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// Publishing is how many nodes are to publish, and for how long.
type Publishing struct {
	Nodes int           `json:"nodes"`
	For   time.Duration `json:"for"`
}

// Client asks a crowd that is served at URL.
type Client struct{ URL string }

// Grow is that of Crowd, and returns the IDs of all nodes.
func (c Client) Grow(ctx context.Context, count int) (nodes []string, err error) {
	return nodes, c.ask(ctx, "/grow", count, &nodes)
}

// Expect is that of Crowd.
func (c Client) Expect(ctx context.Context, wanted Target) error {
	return c.ask(ctx, "/expect", wanted, nil)
}

// Seen is that of Crowd.
func (c Client) Seen(ctx context.Context) (at time.Duration, err error) {
	return at, c.ask(ctx, "/seen", nil, &at)
}

// Publish is that of Crowd, for some time.
func (c Client) Publish(ctx context.Context, publish Publishing) error {
	return c.ask(ctx, "/publish", publish, nil)
}

// Counted is that of Crowd.
func (c Client) Counted(ctx context.Context) (counts Counts, err error) {
	return counts, c.ask(ctx, "/counted", nil, &counts)
}

func (c Client) ask(ctx context.Context, path string, request, answer any) error {
	document, err := json.Marshal(request)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(document))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the crowd, %s: %s", path, bytes.TrimSpace(body))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(body, answer)
}
