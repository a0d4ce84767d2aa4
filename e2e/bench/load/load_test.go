package load_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/e2e/bench/load"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// store is one in memory, which takes a while for everything and counts what is under way.
type store struct {
	clientv3.KV
	pause time.Duration
	fail  error

	mu            sync.Mutex
	content       map[string]string
	busy, busiest int
	puts, gets    int
}

func (s *store) enter(count *int) {
	s.mu.Lock()
	s.busy++
	*count++
	s.busiest = max(s.busiest, s.busy)
	s.mu.Unlock()
	time.Sleep(s.pause)
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
}

func (s *store) Put(_ context.Context, key, value string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	s.enter(&s.puts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content[key] = value
	return &clientv3.PutResponse{}, s.fail
}

func (s *store) Get(_ context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	s.enter(&s.gets)
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &clientv3.GetResponse{}
	if value, ok := s.content[key]; ok {
		response.Kvs = []*mvccpb.KeyValue{{Key: []byte(key), Value: []byte(value)}}
	}
	return response, s.fail
}

// TestShortest asks for less time than anything takes: as many operations are done as there are in flight.
func TestShortest(t *testing.T) {
	s := &store{content: make(map[string]string)}
	answer, err := load.Do(t.Context(), s, load.Request{Operation: load.Put, InFlight: 8, Duration: 1})
	if err != nil || answer.Operations != 8 {
		t.Errorf("%+v: %v", answer, err)
	}
}

func TestAsk(t *testing.T) {
	s := &store{content: make(map[string]string)}
	if err := load.Fill(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(s.content) != load.Keys {
		t.Fatalf("%d keys", len(s.content))
	}
	server := httptest.NewServer(load.Handler(s))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	for _, operation := range []load.Operation{load.Put, load.Get} {
		s.puts, s.gets = 0, 0
		answer, err := load.Ask(t.Context(), client, server.URL, load.Request{Operation: operation, InFlight: 4, Duration: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		did := map[load.Operation]int{load.Put: s.puts, load.Get: s.gets}
		if answer.Operations == 0 || int(answer.Operations) != did[operation] || s.puts+s.gets != did[operation] {
			t.Errorf("%s: %d operations, the store saw %d puts and %d gets", operation, answer.Operations, s.puts, s.gets)
		}
		if answer.Rate() <= 0 || answer.P99 < answer.P50 || answer.P99 > answer.Elapsed {
			t.Errorf("%s: %v in a second, p50 %s, p99 %s in %s", operation, answer.Rate(), answer.P50, answer.P99, answer.Elapsed)
		}
	}
	if len(s.content) != load.Keys {
		t.Errorf("puts made keys: there are %d", len(s.content))
	}
}

// TestDo has operations that take a millisecond of a clock that only they move.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{content: make(map[string]string)}
		if err := load.Fill(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s.pause = time.Millisecond
		for _, operation := range []load.Operation{load.Put, load.Get} {
			s.busiest = 0
			answer, err := load.Do(t.Context(), s, load.Request{Operation: operation, InFlight: 4, Duration: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if want := (load.Answer{Operations: 4 * 50, Elapsed: 50 * time.Millisecond, P50: s.pause, P99: s.pause}); answer != want {
				t.Errorf("%s: %+v, want %+v", operation, answer, want)
			}
			if s.busiest != 4 {
				t.Errorf("%s: %d were in flight, want 4", operation, s.busiest)
			}
		}
	})
}

// TestRate begins operations at their time, whatever the ones before take, as long as there is somebody who can.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		name     string
		inFlight int
		pause    time.Duration
		want     load.Answer
	}{
		{"a store that is fast enough", 4, time.Millisecond, load.Answer{Operations: 10, Elapsed: 91 * time.Millisecond, P50: time.Millisecond, P99: time.Millisecond}},
		{"as slow as all in flight can bear", 4, 40 * time.Millisecond, load.Answer{Operations: 10, Elapsed: 130 * time.Millisecond, P50: 40 * time.Millisecond, P99: 40 * time.Millisecond}},
		// The last of ten is to begin after 90 ms, and begins after 180 ms.
		{"slower than that", 1, 20 * time.Millisecond, load.Answer{Operations: 10, Elapsed: 200 * time.Millisecond, P50: 60 * time.Millisecond, P99: 110 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{content: make(map[string]string), pause: c.pause}
				answer, err := load.Do(t.Context(), s, load.Request{Operation: load.Put, InFlight: c.inFlight, Rate: 100, Duration: 100 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				if answer != c.want {
					t.Errorf("%+v, want %+v", answer, c.want)
				}
			})
		})
	}
}

// TestGrow writes as many bytes as it is asked for, and lets the keys of the other operations alone.
func TestGrow(t *testing.T) {
	s := &store{content: make(map[string]string)}
	if err := load.Fill(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(s.content)
	answer, err := load.Do(t.Context(), s, load.Request{Operation: load.Grow, InFlight: 4, Bytes: 3*load.GrowSize - 1})
	if err != nil || answer.Operations != 3 {
		t.Fatalf("%+v, %v", answer, err)
	}
	values := make(map[string]bool)
	for key, value := range s.content {
		if old, ok := before[key]; ok {
			if value != old {
				t.Errorf("%s was changed", key)
			}
			continue
		}
		values[value] = true
		if len(value) != load.GrowSize {
			t.Errorf("%s has %d bytes", key, len(value))
		}
	}
	if len(values) != 3 {
		t.Errorf("%d values that differ", len(values))
	}
}

func TestFailures(t *testing.T) {
	s := &store{content: make(map[string]string), fail: errors.New("no quorum")}
	server := httptest.NewServer(load.Handler(s))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	good := load.Request{Operation: load.Put, InFlight: 1, Duration: time.Millisecond}
	if _, err := load.Ask(t.Context(), client, server.URL, good); err == nil || !strings.Contains(err.Error(), "no quorum") {
		t.Errorf("a store that fails: %v", err)
	}
	s.fail = nil
	for name, request := range map[string]load.Request{
		"a key that is not there": {Operation: load.Get, InFlight: 1, Duration: time.Millisecond},
		"no such operation":       {Operation: "drop", InFlight: 1, Duration: time.Millisecond},
		"nothing in flight":       {Operation: load.Put, Duration: time.Millisecond},
		"too much in flight":      {Operation: load.Put, InFlight: 1 << 20, Duration: time.Millisecond},
		"no duration":             {Operation: load.Put, InFlight: 1},
		"a negative rate":         {Operation: load.Put, InFlight: 1, Duration: time.Millisecond, Rate: -1},
		"too high a rate":         {Operation: load.Put, InFlight: 1, Duration: time.Millisecond, Rate: 1 << 30},
		"bytes of a put":          {Operation: load.Put, InFlight: 1, Duration: time.Millisecond, Bytes: 1},
		"nothing to grow by":      {Operation: load.Grow, InFlight: 1},
		"to grow for a time":      {Operation: load.Grow, InFlight: 1, Bytes: 1, Duration: time.Millisecond},
		"to grow at a rate":       {Operation: load.Grow, InFlight: 1, Bytes: 1, Rate: 1},
	} {
		clear(s.content)
		if answer, err := load.Ask(t.Context(), client, server.URL, request); err == nil {
			t.Errorf("%s: %v, want an error", name, answer)
		}
	}
	response, err := client.Post(server.URL, "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("half a request: %s", response.Status)
	}
}
