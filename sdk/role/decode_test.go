package role_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
)

type settings struct {
	Name    string            `json:"name"`
	Port    uint16            `json:"port"`
	Offset  int8              `json:"offset"`
	Rate    float64           `json:"rate"`
	On      bool              `json:"on"`
	Next    *settings         `json:"next"`
	List    []settings        `json:"list"`
	Pair    [2]int            `json:"pair"`
	Map     map[string]int    `json:"map"`
	Any     any               `json:"any"`
	Address netip.Addr        `json:"address"`
	When    *time.Time        `json:"when"`
	Bytes   []byte            `json:"bytes"`
	Nested  map[string][]bool `json:"nested"`
	Hidden  string            `json:"-"`
	Plain   string
	embedded
	Embedded
}

type embedded struct{ Inner int }

type Embedded struct {
	Outer int `json:"outer"`
}

func TestDecodeProblems(t *testing.T) {
	fields := "no such field; the fields are name, port"
	for document, want := range map[string][]string{
		`{"name": 1, "port": 65536, "offset": -129, "rate": "x", "on": null}`: {
			"/name: want a string, not a number", "/port: want a whole number of at most 16 bits that is not negative, not this one",
			"/offset: want a whole number of at most 8 bits, not this one", "/rate: want a number, not a string",
		},
		`{"next": {"next": {"port": -1}}, "list": [{}, {"name": []}]}`: {"/next/next/port: want", "/list/1/name: want a string, not an array"},
		`{"Name": "x", "Hidden": "x", "-": "x", "a/b~c": 1}`:           {"/Name: " + fields, "/Hidden: " + fields, "/-: " + fields, "/a~1b~0c: " + fields},
		`{"name": "x", "name": "y"}`:                                   {"/name: duplicate field"},
		`{"map": {"a": 1, "a": 2, "b": "x"}}`:                          {"/map/a: duplicate field", "/map/b: want a whole number of at most 64 bits, not a string"},
		`{"nested": {"a": [true, 0]}}`:                                 {"/nested/a/1: want true or false, not a number"},
		`{"address": "192.0.2.300", "when": "now"}`:                    {"/address: it is not a netip.Addr", "/when: it is not a time.Time"},
		`{"list": {}, "map": [], "next": "x", "name": true}`:           {"/list: want an array, not an object", "/map: want an object, not an array", "/next: want an object, not a string", "/name: want a string, not true"},
		`[]`:                       {"want an object, not an array"},
		`"x"`:                      {"want an object, not a string"},
		"{\n\n  \"name\": \"x\",}": {"not JSON: line 3: "},
		`{} {}`:                    {"not JSON: line 1: "},
		`{`:                        {"not JSON: line 1: "},
	} {
		into := settings{Name: "before"}
		err := role.Decode([]byte(document), &into)
		var problems *role.ConfigurationError
		if !errors.As(err, &problems) {
			t.Errorf("%s: %v", document, err)
			continue
		}
		var got []string
		for _, problem := range problems.Problems {
			got = append(got, strings.TrimPrefix(problem.Path+": "+problem.Message, ": "))
		}
		ok := len(got) == len(want)
		for n := range got {
			ok = ok && strings.HasPrefix(got[n], want[n])
		}
		if !ok {
			t.Errorf("%s:\n%s\nwant\n%s", document, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !reflect.DeepEqual(into, settings{Name: "before"}) {
			t.Errorf("%s: into was changed: %+v", document, into)
		}
	}
}

func TestDecode(t *testing.T) {
	into := settings{Name: "default", Port: 1}
	if err := role.Decode([]byte(` {"port": 80, "next": {"name": "n"}, "list": [{"on": true}, null], "pair": [1, 2], "map": {"a": 1}, "any": {"b": [1]},
		"address": "192.0.2.1", "when": "2026-01-02T03:04:05Z", "bytes": "aGk=", "Plain": "p", "Inner": 3, "outer": 4, "nested": null} `), &into); err != nil {
		t.Fatal(err)
	}
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := settings{
		Name: "default", Port: 80, Next: &settings{Name: "n"}, List: []settings{{On: true}, {}}, Pair: [2]int{1, 2}, Map: map[string]int{"a": 1},
		Any: map[string]any{"b": []any{1.0}}, Address: netip.MustParseAddr("192.0.2.1"), When: &when, Bytes: []byte("hi"), Plain: "p",
		embedded: embedded{Inner: 3}, Embedded: Embedded{Outer: 4},
	}
	if !reflect.DeepEqual(into, want) {
		t.Errorf("got %+v, want %+v", into, want)
	}
	for _, document := range []string{"", " \n", "null", "{}"} {
		into := settings{Name: "default"}
		if err := role.Decode([]byte(document), &into); err != nil || into.Name != "default" {
			t.Errorf("%q: %+v, %v", document, into, err)
		}
	}
}

func TestDecodeIntoNothing(t *testing.T) {
	for _, into := range []any{nil, settings{}, (*settings)(nil)} {
		var problems *role.ConfigurationError
		if err := role.Decode([]byte("{}"), into); err == nil || errors.As(err, &problems) {
			t.Errorf("%T: %v", into, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name": "x", "next": {"list": [{}]}, "map": {"a": 1}}`))
	f.Add([]byte(`{"any": [[[{}]]], "address": "::1", "bytes": [1]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		// Whatever it is given, Decode answers with nothing, or with problems that can be shown.
		var into settings
		err := role.Decode(document, &into)
		var problems *role.ConfigurationError
		if err != nil && (!errors.As(err, &problems) || len(problems.Problems) == 0) {
			t.Errorf("%q: %v", document, err)
		}
	})
}

func ExampleDecode() {
	configuration := struct {
		Listen string `json:"listen"`
		Weight uint8  `json:"weight"`
	}{Listen: "127.0.0.1:0"}
	fmt.Println(role.Decode([]byte(`{"listn": "127.0.0.1:80", "weight": 300}`), &configuration))
	// Output:
	// configuration:
	// 	/listn: no such field; the fields are listen, weight
	// 	/weight: want a whole number of at most 8 bits that is not negative, not this one
}
