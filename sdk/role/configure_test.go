package role_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

type lamp struct {
	Colour string `json:"colour" enum:"red,green" doc:"what ships see"`
	Watts  uint8  `json:"watts" check:"min=1,max=200"`
}

type lampTest struct {
	Listen  string           `json:"listen" check:"required"`
	Name    string           `json:"name" check:"min=2,max=4" pattern:"^[a-zä]+$"`
	Height  float64          `json:"height" check:"min=0.5"`
	Offset  int16            `json:"offset"`
	Lamps   []lamp           `json:"lamps" check:"max=2"`
	Labels  map[string]*lamp `json:"labels" check:"min=1"`
	Main    lamp             `json:"main"`
	Since   *time.Time       `json:"since"`
	Address net.IP           `json:"address"`
	Secret  []byte           `json:"secret"`
	Any     any              `json:"any"`
	Exact   json.Number      `json:"exact"`
	On      bool             `json:"on"`
	hidden  int
}

func newLampTest() *lampTest {
	return &lampTest{Name: "eddy", Height: 30, Main: lamp{Colour: "red", Watts: 60}, hidden: 1}
}

var lampConfiguration = role.Configure(newLampTest, func(c *lampTest, problems *role.ConfigurationError) {
	if c.Height > 40 && c.Main.Watts < 100 {
		problems.Add("/main/watts", "want at least 100 for a high tower")
	}
})

func init() {
	if os.Getenv(asPlugin) == "configured" {
		role.Serve(role.Plugin{Name: "configured", Version: "1.0.0", Roles: []role.Role{{
			Name: "configured", Configuration: lampConfiguration,
			Run: func(ctx context.Context, host *role.Host) error {
				c, err := lampConfiguration.Of(host)
				if err != nil {
					return err
				}
				host.SetValue("read", c.Listen+" "+c.Name+" "+c.Main.Colour)
				return wait(ctx, host)
			},
		}}})
	}
}

// A configuration passes with all that its schema says of it, or is refused with all that is wrong, each with its path; and no value is quoted.
func TestConfigure(t *testing.T) {
	for document, want := range map[string]string{
		`{"listen": ":1"}`: "",
		`{"listen": ":1", "name": "ääää", "height": 0.5, "lamps": [{"watts": 200}], "labels": {"a": {"colour": "green"}}, "since": "2026-01-02T03:04:05Z",
			"address": "192.0.2.1", "secret": "AAAA", "any": [1], "exact": 1.5, "on": true, "offset": -32768}`: "",
		``:                                      "/listen: it is required",
		`{}`:                                    "/listen: it is required",
		`null`:                                  ": want a value, not null",
		`[]`:                                    ": want an object, not an array",
		`{"listen": ":1", "name": null}`:        "/name: want a value, not null",
		`{"listen": ":1", "name": "x"}`:         "/name: want at least 2 characters",
		`{"listen": ":1", "name": "hunter2"}`:   "/name: want at most 4 characters; /name: want what matches the pattern ^[a-zä]+$",
		`{"listen": ":1", "height": 0.25}`:      "/height: want at least 0.5",
		`{"listen": ":1", "offset": 32768}`:     "/offset: want a whole number of at most 16 bits, not this one",
		`{"listen": ":1", "lamps": [{},{},{}]}`: "/lamps: want at most 2 elements",
		`{"listen": ":1", "labels": {}}`:        "/labels: want at least 1 entry",
		`{"main": {"watts": 0, "colour": "hunter2"}, "labels": {"a/b": {"watts": 201}}, "lamps": [{"x": 1}]}`: "/lamps/0/x: no such field; the fields are colour, watts; " +
			"/listen: it is required; /main/watts: want at least 1; /main/colour: want one of red, green; /labels/a~1b/watts: want at most 200",
		`{"listen": ":1", "height": 41}`:      "/main/watts: want at least 100 for a high tower",
		`{"listen": 1, "address": "hunter2"}`: "/listen: want a string, not a number; /address: it is not a net.IP",
	} {
		got := ""
		if err := lampConfiguration.Check([]byte(document)); err != nil {
			var problems *role.ConfigurationError
			if !errors.As(err, &problems) {
				t.Errorf("%s: %v", document, err)
				continue
			}
			var all []string
			for _, problem := range problems.Problems {
				all = append(all, problem.Path+": "+problem.Message)
			}
			got = strings.Join(all, "; ")
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s:\n got %s\nwant %s", document, got, want)
		}
	}
}

// What one reading changes, the next one does not see.
func TestConfigureDefaults(t *testing.T) {
	for range 2 {
		read, err := lampConfiguration.Decode([]byte(`{"listen": ":1", "main": {"watts": 9}}`))
		if want := (lamp{Colour: "red", Watts: 9}); err != nil || read.Main != want || read.Name != "eddy" || read.hidden != 1 {
			t.Errorf("%+v, %v", read, err)
		}
		read.Name = "else"
	}
	none, err := role.Configure[struct{}](nil, nil).Decode(nil)
	if err != nil || none == nil {
		t.Errorf("%v, %v", none, err)
	}
}

const lampSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":["listen"],"properties":{
	"listen":{"type":"string"},"name":{"type":"string","default":"eddy","minLength":2,"maxLength":4,"pattern":"^[a-zä]+$"},
	"height":{"type":"number","default":30,"minimum":0.5},"offset":{"type":"integer","minimum":-32768,"maximum":32767},
	"lamps":{"type":"array","maxItems":2,"items":{"type":"object","additionalProperties":false,"properties":{
		"colour":{"type":"string","enum":["red","green"],"description":"what ships see"},"watts":{"type":"integer","minimum":1,"maximum":200}}}},
	"labels":{"type":"object","minProperties":1,"additionalProperties":{"type":"object","additionalProperties":false,"properties":{
		"colour":{"type":"string","enum":["red","green"],"description":"what ships see"},"watts":{"type":"integer","minimum":1,"maximum":200}}}},
	"main":{"type":"object","additionalProperties":false,"properties":{
		"colour":{"type":"string","enum":["red","green"],"default":"red","description":"what ships see"},"watts":{"type":"integer","default":60,"minimum":1,"maximum":200}}},
	"since":{"type":"string","format":"date-time"},"address":{"type":"string"},"secret":{"type":"string"},"any":{},"exact":{"type":"number"},"on":{"type":"boolean"}}}`

func TestSchema(t *testing.T) {
	text, err := lampConfiguration.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal([]byte(lampSchema), &want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s", text)
	}
}

type node struct{ Next *node }

// What a schema cannot say of a struct, and a tag that is wrong, is a mistake of the author's, which the manifest names.
func TestSchemaIsRefused(t *testing.T) {
	for want, configuration := range map[string]role.Configuration{
		"/Next: the type role_test.node contains itself": role.Configure[node](nil, nil),
		"want a struct":                           role.Configure[[]string](nil, nil),
		"/C: JSON has no type for chan int":       role.Configure[struct{ C chan int }](nil, nil),
		"/M: JSON has no type for map[int]string": role.Configure[struct{ M map[int]string }](nil, nil),
		"/N: json:": role.Configure[struct {
			N int `json:",string"`
		}](nil, nil),
		`/B: check:"min=1"`: role.Configure[struct {
			B bool `check:"min=1"`
		}](nil, nil),
		`/S: check:"needed"`: role.Configure[struct {
			S string `check:"needed"`
		}](nil, nil),
		`/P: pattern:"("`: role.Configure[struct {
			P string `pattern:"("`
		}](nil, nil),
		`/I: enum:"1,2"`: role.Configure[struct {
			I int `enum:"1,2"`
		}](nil, nil),
		"/D: want at most 2 characters": role.Configure(func() *tooLong { return &tooLong{D: "long"} }, nil),
	} {
		_, err := role.Plugin{Name: "x", Version: "1.0.0", Roles: []role.Role{{Name: "x", Configuration: configuration, Run: wait}}}.Manifest()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	_, err := role.Plugin{Name: "x", Version: "1.0.0", Roles: []role.Role{{
		Name: "x", Configuration: lampConfiguration, ConfigurationSchema: "{}", Run: wait,
	}}}.Manifest()
	if err == nil || !strings.Contains(err.Error(), "and a ConfigurationSchema") {
		t.Errorf("two schemas: %v", err)
	}
}

type tooLong struct {
	D string `check:"max=2"`
}

// A plugin shows the schema in its manifest, refuses by it, and reads what it is started with.
func TestConfiguredRole(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t, "configured")
	described, err := process.Service().Describe(t.Context(), &rolev1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := lampConfiguration.Schema(); described.GetManifest().GetRoles()[0].GetConfigurationSchema() != want {
		t.Errorf("the manifest has the schema %s", described.GetManifest().GetRoles()[0].GetConfigurationSchema())
	}
	if details := status.Convert(process.Start(host, "configured", `{"name": "x"}`)).Details(); len(details) != 2 {
		t.Errorf("refused with %v", details)
	}
	if err := process.Start(host, "configured", `{"listen": ":1", "main": {"colour": "green"}}`); err != nil {
		t.Fatal(err)
	}
	if got := process.AwaitReady().GetValues()["read"]; got != ":1 eddy green" {
		t.Errorf("it has read %q", got)
	}
}
