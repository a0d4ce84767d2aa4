package params_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func parsed(t testing.TB, document string) *nodev1.Parameters {
	t.Helper()
	parameters, err := params.Parse("p", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return parameters
}

func binary(t testing.TB, parameters *nodev1.Parameters) []byte {
	t.Helper()
	document, err := proto.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestProtobuf(t *testing.T) {
	want := parsed(t, good)
	got, err := params.Parse("p.pb", binary(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("protobuf and YAML differ:\n%v\n%v", got, want)
	}
}

// JSON has things that YAML has not.
func TestJSON(t *testing.T) {
	want := parsed(t, good)
	want.Directories.System = "/d/\U0001F600 \u2028\u0085é\"\\\t"
	document, err := protojson.MarshalOptions{Multiline: true, Indent: "\t"}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	escaped := bytes.ReplaceAll(document, []byte("\U0001F600"), []byte(`\ud83d\ude00`))
	escaped = bytes.ReplaceAll(escaped, []byte(`"/d/`), []byte(`"\/d/`))
	if !json.Valid(escaped) || bytes.Equal(escaped, document) {
		t.Fatalf("the test's document is no JSON:\n%s", escaped)
	}
	for _, document := range [][]byte{document, escaped} {
		if got, err := params.Parse("p.json", document); err != nil {
			t.Errorf("%v of\n%s", err, document)
		} else if !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	// The places are those of the document.
	_, err = params.Parse("p.json", []byte("{\n\t\"version\": \"reeve.node.v1\",\n\t\"vol\": {}\n}"))
	if err == nil || !strings.Contains(err.Error(), "p.json:3:2 unknown field \"vol\"") {
		t.Errorf("error %v", err)
	}
}

func TestProtobufProblems(t *testing.T) {
	good := parsed(t, good)
	with := func(change func(*nodev1.Parameters)) []byte {
		parameters := proto.CloneOf(good)
		change(parameters)
		return binary(t, parameters)
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	for name, test := range inorder.Of(map[string]struct {
		document []byte
		want     []string
	}{
		"cut off":       {binary(t, good)[:40], []string{"neither text"}},
		"another file":  {[]byte("\x1f\x8b\x08\x00 a compressed file"), []string{"neither text"}},
		"UTF-16":        {[]byte("\xff\xfev\x00e\x00r\x00"), []string{"neither text"}},
		"Latin-1":       {[]byte("version: reeve.node.v1 # caf\xe9\n"), []string{"neither text"}},
		"nothing known": {[]byte{0xf8, 0x07, 0x01}, []string{"neither text"}},
		"a newer version": {
			slices.Concat(with(func(p *nodev1.Parameters) { p.Version = "reeve.node.v2" }), unknown), []string{"version:", "field 99: this version of reeved"},
		},
		"unknown fields inside": {
			with(func(p *nodev1.Parameters) {
				p.GetVolume().GetPlain().ProtoReflect().SetUnknown(unknown)
				p.GetPlugins()[1].ProtoReflect().SetUnknown(unknown)
				p.GetPlugins()[1].GetGrants()[0].GetGrants()[0].ProtoReflect().SetUnknown(unknown)
			}),
			[]string{"volume.plain.field 99:", "plugins[1].field 99:", "plugins[1].grants[0].grants[0].field 99:"},
		},
		"everything at once": {
			with(func(p *nodev1.Parameters) {
				p.Directories.Run, p.Network.ApiListen = "/d/data/run", "nowhere"
				p.GetBootstrap().Roles[0].Configuration = "{"
			}),
			[]string{"directories.run: lies within directories.data", "network.api_listen:", "bootstrap.roles[0].configuration: is not a JSON document"},
		},
	}) {
		t.Run(name, func(t *testing.T) {
			_, err := params.Parse("p.pb", test.document)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not speak of %q:\n%v", want, err)
				}
			}
		})
	}
}

// Whatever the document is, there are parameters or an error; and a JSON document means what JSON says that it means.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"version":"reeve.node.v1"}`))
	f.Add([]byte("{\t\"version\": \"\\ud83d\\ude00\\u2028\"}"))
	f.Add([]byte("&a [*a]"))
	f.Add([]byte(registering("  ticket: " + ticketText(f) + "\n")))
	f.Add([]byte("# nothing"))
	f.Add(binary(f, parsed(f, good)))
	asJSON, err := protojson.Marshal(parsed(f, good))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(asJSON)
	f.Fuzz(func(t *testing.T, document []byte) {
		parameters, err := params.Parse("p", document)
		if (err == nil) != (parameters != nil) {
			t.Fatalf("parameters %v with error %v", parameters, err)
		}
		if err != nil {
			return
		}
		if parameters.GetVersion() != params.Version || parameters.GetDirectories() == nil || parameters.GetVolume() == nil {
			t.Errorf("accepted: %v", parameters)
		}
		if json.Valid(document) {
			want := &nodev1.Parameters{}
			if err := protojson.Unmarshal(document, want); err == nil && !proto.Equal(parameters, want) {
				t.Errorf("%v, and JSON says %v", parameters, want)
			}
		}
		again, err := params.Parse("p", binary(t, parameters))
		if err != nil || !proto.Equal(parameters, again) {
			t.Errorf("%v became %v by way of protobuf: %v", parameters, again, err)
		}
	})
}
