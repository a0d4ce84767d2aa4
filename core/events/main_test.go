package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/events"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// journal is a journal under test.
type journal struct {
	*events.Journal
	t    *testing.T
	path string
	stop func()
}

// open opens the journal of a path.
func open(t *testing.T, path string, maxBytes int64) *journal {
	t.Helper()
	opened, err := events.Open(events.Config{
		Log: hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Debug}), Path: path, MaxBytes: maxBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &journal{Journal: opened, t: t, path: path, stop: func() {}}
}

// run opens the journal of a path and runs it until the test ends or stop is called.
func run(t *testing.T, path string, maxBytes int64) *journal {
	t.Helper()
	j := open(t, path, maxBytes)
	j.start()
	return j
}

func (j *journal) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stopped := false
	j.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			j.t.Errorf("Run: %v", err)
		}
	}
	j.t.Cleanup(func() { j.stop() })
}

// note records an event of a type.
func (j *journal) note(kind string) { j.Record(&nodev1.Event{Type: kind, Message: "it happened"}) }

// read returns what a query that does not follow finds.
func (j *journal) read(query events.Query) []*nodev1.Event {
	j.t.Helper()
	all, corrupt := j.scan(query)
	if corrupt > 0 {
		j.t.Errorf("%d lines were corrupt", corrupt)
	}
	return all
}

// scan is read where lines may be corrupt.
func (j *journal) scan(query events.Query) ([]*nodev1.Event, int) {
	j.t.Helper()
	reader := j.Read(query)
	defer reader.Close()
	var all []*nodev1.Event
	for {
		next, err := reader.Next(j.t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			j.t.Fatalf("Next: %v", err)
		}
		if len(next) == 0 {
			j.t.Fatal("Next returned no event")
		}
		all = append(all, next...)
	}
	for i := 1; i < len(all); i++ {
		if all[i].GetSequence() <= all[i-1].GetSequence() {
			j.t.Fatalf("event %d comes after event %d", all[i].GetSequence(), all[i-1].GetSequence())
		}
	}
	return all, reader.Corrupt()
}

// sync waits until all that was recorded is on disk.
func (j *journal) sync() {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	if err := j.Sync(ctx); err != nil {
		j.t.Fatal(err)
	}
}

// kinds is the types of events, in short.
func kinds(all []*nodev1.Event) string {
	var types []string
	for _, e := range all {
		types = append(types, e.GetType())
	}
	return strings.Join(types, " ")
}

// numbers is the numbers of events, in short.
func numbers(all []*nodev1.Event) string {
	var numbers []string
	for _, e := range all {
		numbers = append(numbers, fmt.Sprint(e.GetSequence()))
	}
	return strings.Join(numbers, " ")
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "events.jsonl") }
