package contexts_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/contexts"
)

// FuzzParse reads what may be config.json: what is accepted is written so that it is read again, and is the same.
func FuzzParse(f *testing.F) {
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
