package output_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/output"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGolden holds every document in every format: scripts decide on them. UPDATE_GOLDEN=1 writes the files anew; what is changed then in a JSON
// file may only be something that is added.
func TestGolden(t *testing.T) {
	for name, document := range samples() {
		for _, format := range output.Formats() {
			t.Run(name+"."+format, func(t *testing.T) {
				var got bytes.Buffer
				if err := output.Print(&got, output.Format(format), document, sampleNow); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join("testdata", "golden", name+"."+format)
				if os.Getenv("UPDATE_GOLDEN") != "" {
					if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), want) {
					t.Errorf("it is\n%s\nwant\n%s", got.Bytes(), want)
				}
			})
		}
	}
}

// TestYAMLIsJSON holds that both formats are the same document.
func TestYAMLIsJSON(t *testing.T) {
	for name, document := range samples() {
		var inJSON, inYAML bytes.Buffer
		if err := output.Print(&inJSON, output.JSON, document, sampleNow); err != nil {
			t.Fatal(err)
		}
		if err := output.Print(&inYAML, output.YAML, document, sampleNow); err != nil {
			t.Fatal(err)
		}
		back, err := yaml.YAMLToJSON(inYAML.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var one, other any
		if err := json.Unmarshal(inJSON.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &other); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(one, other) {
			t.Errorf("%s is in JSON %v and in YAML %v", name, one, other)
		}
	}
}

// TestEveryDocumentIsSampled finds the documents in the source of the package: a new one cannot be forgotten.
func TestEveryDocumentIsSampled(t *testing.T) {
	sampled := make(map[string]bool)
	for _, document := range samples() {
		sampled[reflect.TypeOf(document).Name()] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			method, ok := declaration.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "table" {
				continue
			}
			found++
			if receiver, ok := method.Recv.List[0].Type.(*ast.Ident); !ok || !sampled[receiver.Name] {
				t.Errorf("%s: no sample is of the type of method table: add one to samples", file)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d documents were found: the test does not see them any more", found)
	}
}

// TestNoGoldenIsLeft finds files of samples that are no more.
func TestNoGoldenIsLeft(t *testing.T) {
	files, err := os.ReadDir("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, format, _ := strings.Cut(file.Name(), ".")
		if _, ok := samples()[name]; !ok || !slices.Contains(output.Formats(), format) {
			t.Errorf("%s belongs to no sample", file.Name())
		}
	}
}

// TestFieldNames holds that all fields of documents are named alike.
func TestFieldNames(t *testing.T) {
	var check func(name string, kind reflect.Type, seen map[reflect.Type]bool)
	check = func(name string, kind reflect.Type, seen map[reflect.Type]bool) {
		embeds := func(field reflect.StructField) bool { return field.Anonymous }
		if kind.Implements(reflect.TypeFor[proto.Message]()) && kind.Kind() == reflect.Pointer && !slices.ContainsFunc(reflect.VisibleFields(kind.Elem()), embeds) {
			return // the linter of the protocol sees to its names
		}
		switch kind.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			check(name, kind.Elem(), seen)
		case reflect.Struct:
			if seen[kind] || kind == reflect.TypeFor[time.Time]() {
				return
			}
			seen[kind] = true
			for i := range kind.NumField() {
				field := kind.Field(i)
				tag := field.Tag.Get("json")
				if !field.Anonymous && tag != "-" && (tag == "" || strings.ToLower(tag) != tag || strings.ContainsAny(tag, ",-")) {
					t.Errorf("%s.%s is named %q: a name in lower case with underscores is wanted, and no options", name, field.Name, tag)
				}
				check(name+"."+field.Name, field.Type, seen)
			}
		}
	}
	for name, document := range samples() {
		check(name, reflect.TypeOf(document), make(map[reflect.Type]bool))
	}
}

func TestStream(t *testing.T) {
	events := []output.Document{output.Event{Event: sampleEvents()[0]}, output.Event{Event: sampleEvents()[1]}}
	want := map[output.Format]string{
		output.JSON: `{"sequence":1,`, output.YAML: "---\ndetails: {}\n", output.Table: "2m0s    info      CoreStarted         -             the core has started\n",
	}
	for format, begin := range want {
		var got bytes.Buffer
		for _, event := range events {
			if err := output.PrintNext(&got, format, event, sampleNow); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasPrefix(got.String(), begin) {
			t.Errorf("%s begins with %q, want %q", format, got.String(), begin)
		}
		if format != output.YAML && strings.Count(got.String(), "\n") != len(events) {
			t.Errorf("%s is not one line for each document: %q", format, got.String())
		}
	}
}
