package role_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/reeveproject/reeve/sdk/role"
)

// Whatever a configuration is, it is read or refused with its problems, and what is read keeps the bounds.
func FuzzConfigure(f *testing.F) {
	for _, document := range []string{
		``, `null`, `[]`, `{"listen": ":1"}`, `{"listen": ":1", "listen": 2}`, `{"listen": ":1", "labels": {"a": null, "b": {"watts": 1e9}}, "lamps": [null, {"colour": "red"}]}`,
		`{"listen": ":1", "height": 1e400, "offset": -1.5, "exact": "x"}`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		read, err := lampConfiguration.Decode(document)
		if err != nil {
			var problems *role.ConfigurationError
			if !errors.As(err, &problems) || len(problems.Problems) == 0 || read != nil {
				t.Errorf("%q: %v, %v", document, read, err)
			}
			return
		}
		if !json.Valid(document) {
			t.Errorf("%q was read", document)
		}
		if read.Height < 0.5 || len(read.Lamps) > 2 || len(read.Name) > 8 {
			t.Errorf("%q is beyond the bounds: %+v", document, read)
		}
	})
}
