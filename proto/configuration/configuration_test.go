package configuration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/configuration"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const schema = `{"type": "object", "required": ["a"], "additionalProperties": false, "properties": {
	"a": {"type": "string", "pattern": "^[a-z]+$"}, "list": {"items": {"type": "integer", "maximum": 3}}, "x/y": {"const": "fixed"}}}`

// Each part that does not fit is named by its path, and no value is quoted.
func TestCheck(t *testing.T) {
	for document, want := range map[string][]string{
		"":                                      nil,
		`{"a": "b"}`:                            nil,
		`{"a": "S3CRET"}`:                       {"/a"},
		`{"a": "b", "list": [1, "S3CRET", 94]}`: {"/list/1", "/list/2"},
		`{"a": "b", "x/y": "S3CRET"}`:           {"/x~1y"},
		`{}`:                                    {""},
		`{"a": "b", "other": "S3CRET"}`:         {""},
		`["S3CRET"]`:                            {""},
		`{"a": `:                                {""},
		`{"a": "` + strings.Repeat("a", limits.Configuration) + `"}`: {""},
	} {
		var paths []string
		for _, problem := range configuration.Check(document, &rolev1.RoleManifest{Name: "lamp", ConfigurationSchema: schema}) {
			paths = append(paths, problem.Path)
			if problem.Message == "" || strings.Contains(problem.Message, "S3CRET") || strings.Contains(problem.Message, "94") {
				t.Errorf("%.64s: says %q", document, problem.Message)
			}
		}
		slices.Sort(paths)
		if !slices.Equal(paths, want) {
			t.Errorf("%.64s: %q, want %q", document, paths, want)
		}
	}
	if problems := configuration.Check(`{"a": 1}`, nil); len(problems) > 0 {
		t.Errorf("of a role without a manifest: %v", problems)
	}
}

// A schema that refers to a file is refused, and the file is not read.
func TestCheckSchema(t *testing.T) {
	if err := configuration.CheckSchema(schema); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", `{"type":`, `{"pattern": "("}`, `{"$ref": "file:///etc/passwd"}`} {
		if err := configuration.CheckSchema(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Whatever a schema and a document are, the one is held against the other without harm.
func FuzzConfiguration(f *testing.F) {
	for _, schema := range []string{
		"", `{}`, `true`, `{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n"],"additionalProperties":false}`,
		`{"$ref":"#"}`, `{"$ref":"file:///etc/passwd"}`, `{"pattern":"("}`, `{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `{"type":`,
	} {
		for _, document := range []string{"", "{}", `{"n":0}`, `{"n":1e400,"x":[{"y":null}]}`, "[]", "{", "\x00\xff"} {
			f.Add(schema, document)
		}
	}
	f.Fuzz(func(t *testing.T, schema, document string) {
		for _, problem := range configuration.Check(document, &rolev1.RoleManifest{Name: "lamp", ConfigurationSchema: schema}) {
			if problem.Path != "" && problem.Path[0] != '/' || problem.Message == "" {
				t.Errorf("problem %+v", problem)
			}
		}
	})
}
