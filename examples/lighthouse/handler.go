package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

// storeTime is how long a request waits for the store. It answers within milliseconds; an election takes about a second.
const storeTime = 3 * time.Second

// handler answers GET / with the count, and POST / with the count after it has grown by one. GET /healthz is answered without the store.
func handler(l *light, log hclog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", l.answer(l.counter.read, log))
	mux.HandleFunc("POST /{$}", l.answer(l.counter.increment, log))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"health": "ok"})
	})
	return mux
}

func (l *light) answer(count func(context.Context) (uint64, error), log hclog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), storeTime)
		defer cancel()
		n, err := count(ctx)
		if err != nil {
			l.unanswered.Add(1)
		}
		switch {
		case errors.Is(err, errCorrupt):
			log.Error("the counter cannot be used", "error", err)
			reply(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		case err != nil:
			log.Warn("the store did not answer", "error", err)
			reply(w, http.StatusServiceUnavailable, map[string]string{"error": "the consensus store is not available: " + err.Error()})
		default:
			reply(w, http.StatusOK, map[string]uint64{"count": n})
		}
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has gone
}
