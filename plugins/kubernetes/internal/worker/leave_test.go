package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// fakeAPI answers as API servers do about one node and its pods.
type fakeAPI struct {
	t  *testing.T
	mu sync.Mutex
	// down: no server answers. missing: there is no such node.
	down, missing bool
	cordoned      bool
	pods          map[string]map[string]any
	// budget is how often the eviction of a pod is refused, and evicted how often it was asked for.
	budget, evicted map[string]int
	patches         int
}

func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.down {
		return nil, fmt.Errorf("dial tcp: connection refused")
	}
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	say := func(value any) { _ = json.NewEncoder(w).Encode(value) }
	switch path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/"); {
	case path[0] == "nodes" && a.missing:
		w.WriteHeader(http.StatusNotFound)
	case path[0] == "nodes" && r.Method == http.MethodGet:
		say(map[string]any{"spec": map[string]any{"unschedulable": a.cordoned}})
	case path[0] == "nodes":
		var patch struct {
			Spec struct{ Unschedulable bool }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			a.t.Error(err)
		}
		a.cordoned, a.patches = patch.Spec.Unschedulable, a.patches+1
		say(nil)
	case path[0] == "pods":
		say(map[string]any{"items": slices.Collect(maps.Values(a.pods))})
	case path[len(path)-1] == "eviction":
		name := path[3]
		a.evicted[name]++
		if a.budget[name]--; a.budget[name] >= 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		delete(a.pods, name)
		w.WriteHeader(http.StatusCreated)
	default:
		a.t.Errorf("%s %s is asked for", r.Method, r.URL)
	}
}

// apiWith is a client of API servers that know these pods: fields of their metadata, or a phase.
func apiWith(t *testing.T, pods map[string]map[string]any) (*fakeAPI, *nodeClient) {
	api := &fakeAPI{t: t, pods: make(map[string]map[string]any), budget: make(map[string]int), evicted: make(map[string]int)}
	for name, more := range pods {
		metadata := map[string]any{"name": name, "namespace": "default"}
		maps.Copy(metadata, more)
		api.pods[name] = map[string]any{"metadata": metadata, "status": map[string]any{"phase": more["phase"]}}
	}
	return api, &nodeClient{at: paths{node: "reeve-1", data: t.TempDir()}, base: "http://api", http: &http.Client{Transport: api}}
}

// TestDrain: pods go as their budgets allow; those that belong to the node, and those that have ended, stay.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := apiWith(t, map[string]map[string]any{
			"web": nil, "guarded": nil,
			"proxy":  {"ownerReferences": []map[string]any{{"kind": "DaemonSet"}}},
			"static": {"annotations": map[string]any{mirror: "1"}},
			"job":    {"phase": "Succeeded"},
		})
		api.budget["guarded"] = 20
		began := time.Now()
		client.drain(hclog.NewNullLogger())
		if left := slices.Sorted(maps.Keys(api.pods)); !slices.Equal(left, []string{"job", "proxy", "static"}) {
			t.Errorf("%v are left", left)
		}
		if !api.cordoned || api.evicted["web"] != 1 || api.evicted["guarded"] != 21 || len(api.evicted) != 2 {
			t.Errorf("cordoned: %t; evictions: %v", api.cordoned, api.evicted)
		}
		if took := time.Since(began); took >= drainTime {
			t.Errorf("it took %s, as if a pod were waited for that was gone", took)
		}
		t.Log("the role lifts its own cordon when it is back, once")
		for range 2 {
			done := false
			node, err := client.node(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := client.liftCordon(t.Context(), node, &done); err != nil || !done {
				t.Errorf("%v, done: %t", err, done)
			}
			if api.cordoned || api.patches != 2 {
				t.Errorf("cordoned: %t, after %d changes", api.cordoned, api.patches)
			}
		}
	})
}

// TestDrainEnds: a budget that never allows it holds the role up for as long as a drain may take.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := apiWith(t, map[string]map[string]any{"guarded": nil, "web": nil})
		api.budget["guarded"] = 1000
		began := time.Now()
		client.drain(hclog.NewNullLogger())
		if took := time.Since(began); took != drainTime {
			t.Errorf("it took %s", took)
		}
		if left := slices.Sorted(maps.Keys(api.pods)); !slices.Equal(left, []string{"guarded"}) {
			t.Errorf("%v are left", left)
		}
	})
}

// TestForeignCordon: who cordoned the node themselves lift it themselves.
func TestForeignCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := apiWith(t, map[string]map[string]any{"web": nil})
		api.cordoned = true
		client.drain(hclog.NewNullLogger())
		if len(api.pods) != 0 {
			t.Errorf("%v are left", api.pods)
		}
		done := false
		node, err := client.node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := client.liftCordon(t.Context(), node, &done); err != nil || !done || !api.cordoned || api.patches != 0 {
			t.Errorf("%v, done: %t, cordoned: %t after %d changes", err, done, api.cordoned, api.patches)
		}
	})
}

// TestNotDrained: without an API server, or without a Node, nobody is asked where pods could go, and nothing is waited for.
func TestNotDrained(t *testing.T) {
	for name, change := range map[string]func(*fakeAPI){
		"no API server": func(a *fakeAPI) { a.down = true },
		"no Node":       func(a *fakeAPI) { a.missing = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := apiWith(t, map[string]map[string]any{"web": nil})
				change(api)
				began := time.Now()
				client.drain(hclog.NewNullLogger())
				if took := time.Since(began); took != 0 || len(api.evicted) != 0 {
					t.Errorf("it took %s; evictions: %v", took, api.evicted)
				}
			})
		})
	}
}
