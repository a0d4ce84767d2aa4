package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/setup"
)

// Whatever is in a file of parameters, it is read, or refused with the name of the file; what is read can be written so that it is read again.
func FuzzReadParameters(f *testing.F) {
	for _, seed := range []string{
		"version: reeve.node.v1\ndirectories: {system: /s, data: /d, run: /r}\nbootstrap:\n  ownerPublicKey: AAAA\n  roles: [{role: consensus}]\n",
		`{"version":"reeve.node.v1","plugins":[{"path":"/p"}]}`, "", "null", "- a\n", "a: &a [*a]\n", "a: !!binary x", "\x00\xff", "version: [", "version: a\nversion: b\n",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "reeved.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		parameters, err := setup.ReadParameters(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		encoded, err := setup.Encode("# again\n", parameters)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, encoded, 0o600); err != nil {
			t.Fatal(err)
		}
		if again, err := setup.ReadParameters(path); err != nil || !proto.Equal(parameters, again) {
			t.Errorf("%v became %v: %v", parameters, again, err)
		}
	})
}
