package contexts_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
)

// FuzzParse reads what may be config.json: what is accepted is written so that it is read again, and is the same.
func FuzzParse(f *testing.F) {
	ca := newAuthority(f, "c0ffee")
	good := &contexts.Config{Current: "lab", Contexts: []contexts.Context{ca.context("lab"), ca.context("attic")}}
	text, err := good.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)-9])
	f.Add(bytes.Replace(text, []byte("BEGIN"), []byte("BEGYN"), 1))
	for _, seed := range []string{
		"", "null", "{}", "[]", `{"version":"reeve.contexts.v1"}`, `{"version":"reeve.contexts.v2"}`, `{"version":"reeve.contexts.v1","contexts":null}`,
		`{"version":"reeve.contexts.v1","contexts":[{"name":"lab"}]}`, `{"version":"reeve.contexts.v1","current":"x"}`, strings.Repeat("[", 10_000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := contexts.Parse(text)
		if err != nil {
			return
		}
		encoded, err := config.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := contexts.Parse(encoded)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, encoded)
		}
		if !reflect.DeepEqual(config, again) {
			t.Fatalf("%+v\n%+v", config, again)
		}
	})
}

// FuzzParseSession reads what may be the file of a session: whatever is wrong with it, the error shows nothing of it.
func FuzzParseSession(f *testing.F) {
	dir := f.TempDir()
	store, ca := contexts.New(dir), newAuthority(f, "c0ffee")
	lock, err := store.LockSession(f.Context(), "lab")
	if err != nil {
		f.Fatal(err)
	}
	defer lock.Release()
	if err := lock.Write(ca.session(f, "alice", start.Add(time.Hour))); err != nil {
		f.Fatal(err)
	}
	text := read(f, dir+"/sessions/lab.json")
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(bytes.Replace(text, []byte("MC4C"), []byte("MC4D"), 1))
	f.Add([]byte(`{"version":"reeve.session.v1","key":"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		session, err := contexts.ParseSession(text)
		if err != nil {
			if strings.Contains(err.Error(), "c2VjcmV0") {
				t.Fatalf("the error quotes the file: %v", err)
			}
			return
		}
		if len(session.Certificate().Certificate) == 0 || session.TrustDomain() == "" && session.Operator != "" {
			t.Fatalf("a session without a certificate: %v", session)
		}
	})
}

func read(f *testing.F, path string) []byte {
	f.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return text
}
