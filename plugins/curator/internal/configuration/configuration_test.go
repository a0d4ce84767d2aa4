package configuration_test

import (
	"errors"
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestParse(t *testing.T) {
	listening := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 4711}
	tests := map[string]struct {
		listen, endpoint string
		problems         []string
	}{
		``:                             {listen: "127.0.0.1:0", endpoint: "192.0.2.9:4711"},
		`{}`:                           {listen: "127.0.0.1:0", endpoint: "192.0.2.9:4711"},
		`{"listen": "192.0.2.9:4711"}`: {listen: "192.0.2.9:4711", endpoint: "192.0.2.9:4711"},
		`{"listen": "0.0.0.0:0", "advertise": "n1.example:0"}`:   {listen: "0.0.0.0:0", endpoint: "n1.example:4711"},
		`{"listen": ":7400", "advertise": "[2001:db8::1]:7443"}`: {listen: ":7400", endpoint: "[2001:db8::1]:7443"},
		`{"listen": "0.0.0.0:0"}`:                                {listen: "0.0.0.0:0", endpoint: "192.0.2.1:4711"},
		`{"listen": ":7443"}`:                                    {listen: ":7443", endpoint: "192.0.2.1:4711"},
		`{"listen": ":7400", "advertise": "[::]:7400"}`:          {problems: []string{"/advertise"}},
		`{"listen": ""}`:                                         {problems: []string{"/listen"}},
		`{"listen": "127.0.0.1:http", "advertise": "nowhere"}`:   {problems: []string{"/listen", "/advertise"}},
		`{"listen": "127.0.0.1:70000"}`:                          {problems: []string{"/listen"}},
		`{"listen": 1, "port": 2}`:                               {problems: []string{"/listen", "/port"}},
		`[]`:                                                     {problems: []string{""}},
	}
	for _, document := range slices.Sorted(maps.Keys(tests)) {
		want := tests[document]
		t.Run(document, func(t *testing.T) {
			got, err := configuration.Parse([]byte(document))
			var refused *role.ConfigurationError
			if len(want.problems) > 0 {
				if !errors.As(err, &refused) {
					t.Fatalf("got %v, %v", got, err)
				}
				var paths []string
				for _, problem := range refused.Problems {
					paths = append(paths, problem.Path)
				}
				if !slices.Equal(paths, want.problems) {
					t.Errorf("problems at %q, want %q", paths, want.problems)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if endpoint := got.Endpoint(listening, []string{"192.0.2.1", "2001:db8::2"}); got.Listen != want.listen || endpoint != want.endpoint {
				t.Errorf("listens on %s, tells %s; want %+v", got.Listen, endpoint, want)
			}
			if endpoint := got.Endpoint(listening, nil); got.Follows() != (endpoint == "") {
				t.Errorf("while the node knows no address it tells %q, and follows the node: %t", endpoint, got.Follows())
			}
			// What is good must be so to the cluster too, which goes by the schema.
			manifest := &rolev1.RoleManifest{Name: "curator", ConfigurationSchema: configuration.Schema}
			if problems := rules.Configuration("configuration", document, manifest); len(problems) > 0 {
				t.Errorf("the schema refuses it: %v", problems)
			}
		})
	}
}

// Nobody is told of an address of a family that is not listened on.
func TestEndpointIsListenedOn(t *testing.T) {
	listening := &net.TCPAddr{IP: net.IPv6unspecified, Port: 4711}
	for _, test := range []struct {
		listen string
		node   []string
		want   string
	}{
		{"0.0.0.0:0", []string{"2001:db8::1", "192.0.2.1"}, "192.0.2.1:4711"},
		{"0.0.0.0:0", []string{"2001:db8::1"}, ""},
		{":0", []string{"2001:db8::1", "192.0.2.1"}, "[2001:db8::1]:4711"},
		{"[::]:0", []string{"192.0.2.1", "2001:db8::1"}, "192.0.2.1:4711"},
	} {
		if got := (configuration.Configuration{Listen: test.listen}).Endpoint(listening, test.node); got != test.want {
			t.Errorf("%s of %v is %q, want %q", test.listen, test.node, got, test.want)
		}
	}
}
