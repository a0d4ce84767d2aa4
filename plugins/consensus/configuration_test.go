package main

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

func TestConfiguration(t *testing.T) {
	for _, c := range []struct {
		document string
		want     []time.Duration // heartbeat, election
		paths    []string        // of the problems
	}{
		{``, []time.Duration{100 * time.Millisecond, time.Second}, nil},
		{`{}`, []time.Duration{100 * time.Millisecond, time.Second}, nil},
		{`{"heartbeatMilliseconds":10,"electionMilliseconds":100}`, []time.Duration{10 * time.Millisecond, 100 * time.Millisecond}, nil},
		{`{"heartbeatMilliseconds":200}`, []time.Duration{200 * time.Millisecond, time.Second}, nil},
		{`{"heartbeatMilliseconds":201}`, nil, []string{"/electionMilliseconds"}},
		{`{"heartbeatMilliseconds":4}`, nil, []string{"/heartbeatMilliseconds"}},
		{`{"heartbeatMilliseconds":0,"electionMilliseconds":50001}`, nil, []string{"/heartbeatMilliseconds", "/electionMilliseconds"}},
		{`{"heartbeatMilliseconds":10000,"electionMilliseconds":50000}`, []time.Duration{10 * time.Second, 50 * time.Second}, nil},
		{`{"heartbeatMilliseconds":10001}`, nil, []string{"/heartbeatMilliseconds", "/electionMilliseconds"}},
		{`{"heartbeatMilliseconds":4294967295,"electionMilliseconds":4294967295}`, nil, []string{"/heartbeatMilliseconds", "/electionMilliseconds", "/electionMilliseconds"}},
		{`{"heartbeatMilliseconds":-1}`, nil, []string{"/heartbeatMilliseconds"}},
		{`{"quotaBytes":16777216}`, []time.Duration{100 * time.Millisecond, time.Second}, nil},
		{`{"quotaBytes":8589934592}`, []time.Duration{100 * time.Millisecond, time.Second}, nil},
		{`{"quotaBytes":16777215}`, nil, []string{"/quotaBytes"}},
		{`{"quotaBytes":8589934593}`, nil, []string{"/quotaBytes"}},
		{`{"quotaBytes":-1}`, nil, []string{"/quotaBytes"}},
		{`{"heartbeat":100}`, nil, []string{"/heartbeat"}},
		{`[]`, nil, []string{""}},
	} {
		got, err := parseConfiguration([]byte(c.document))
		if c.want != nil {
			if err != nil || got.heartbeat() != c.want[0] || got.election() != c.want[1] {
				t.Errorf("%s: %v, %v; want %v", c.document, got, err, c.want)
			}
			continue
		}
		var problems *role.ConfigurationError
		if !errors.As(err, &problems) {
			t.Errorf("%s: %v, want a ConfigurationError", c.document, err)
			continue
		}
		var paths []string
		for _, problem := range problems.Problems {
			paths = append(paths, problem.Path)
		}
		if len(paths) != len(c.paths) {
			t.Errorf("%s: problems %v, want %v", c.document, problems, c.paths)
			continue
		}
		for n := range paths {
			if paths[n] != c.paths[n] {
				t.Errorf("%s: problems %v, want %v", c.document, problems, c.paths)
			}
		}
	}
}

func TestQuota(t *testing.T) {
	for document, want := range map[string]int64{``: 2 << 30, `{"quotaBytes":33554432}`: 32 << 20} {
		if got, err := parseConfiguration([]byte(document)); err != nil || got.QuotaBytes != want {
			t.Errorf("%s: %d, %v; want %d", document, got.QuotaBytes, err, want)
		}
	}
}

func TestSchemaIsJSON(t *testing.T) {
	if !json.Valid([]byte(configurationSchema)) {
		t.Error("the schema of the configuration is not JSON")
	}
}

func TestPeerListen(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, ":7445": true, "0.0.0.0:1": true, "192.0.2.1:7445": true, "[2001:db8::1]:7445": true, "node-1.example:1": true,
		"7445": false, "192.0.2.1:0": false, "a b:1": false, "224.0.0.1:1": false, ":70000": false,
	} {
		document, err := json.Marshal(map[string]string{"peerListen": address})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseConfiguration(document); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}
