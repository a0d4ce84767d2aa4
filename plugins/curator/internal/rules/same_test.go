package rules_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
)

func TestSameConfiguration(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null]}`, "{ \"b\" : [true, null],\n\"a\" : 1 }", true},
		{`{"a":100}`, `{"a":1e2}`, true},
		{`{"a":100}`, `{"a":1.00E+2}`, true},
		{`{"a":0.5}`, `{"a":5e-1}`, true},
		{`{"a":-0.50}`, `{"a":-5e-1}`, true},
		{`{"a":0}`, `{"a":-0.0e7}`, true},
		{`{"a":"é/"}`, `{"a":"\u00e9\/"}`, true},
		{`{"a":1e999999999}`, `{"a":10e999999998}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":1}`, `{"a":-1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"A":1}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":1e99999999999}`, `{"a":1e99999999998}`, false},
		{`{"a":1}`, `{"a":1} {}`, false},
		{`{"a":null}`, `{}`, false},
		{``, `{}`, false},
		{``, ``, true},
	} {
		if rules.SameConfiguration(test.a, test.b) != test.same || rules.SameConfiguration(test.b, test.a) != test.same {
			t.Errorf("%s and %s: same is to be %t", test.a, test.b, test.same)
		}
	}
}

// FuzzSameConfiguration holds what is the same against what a document says by its own.
func FuzzSameConfiguration(f *testing.F) {
	f.Add(`{"a":1e2,"b":[0.10]}`, `{"b":[1e-1],"a":100}`)
	f.Add(`{"a":{"b":{}}}`, `{"a":{"b":[]}}`)
	f.Add(`{`, `{`)
	f.Add(`{"a":1e999}`, `{"a":10e998}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		same := rules.SameConfiguration(a, b)
		if same != rules.SameConfiguration(b, a) {
			t.Fatal("it depends on which comes first")
		}
		if same && a != b && (!json.Valid([]byte(a)) || !json.Valid([]byte(b))) {
			t.Fatal("what is no JSON says the same as something else")
		}
		var one, other any
		if json.Unmarshal([]byte(a), &one) != nil || json.Unmarshal([]byte(b), &other) != nil {
			return
		}
		written, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		// As floating-point numbers what says the same is the same.
		if same && string(written) != string(again) && !strings.Contains(string(written)+string(again), "-0") {
			t.Fatalf("%s and %s", written, again)
		}
	})
}
