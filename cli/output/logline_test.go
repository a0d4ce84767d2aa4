package output_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/output"
)

// TestRecordsInYAML prints records with what JSON has and YAML does not.
func TestRecordsInYAML(t *testing.T) {
	for line, want := range map[string]string{
		`{"msg":"a\/b"}`:                     "a/b",
		`{"msg":"\ud83d\ude00"}`:             "\U0001f600",
		`{"msg":"\ud83d"}`:                   "\ufffd",
		`{"msg":"\u007f\u0085\u001b"}`:       "\u007f\u0085\u001b",
		`{"msg":"first","msg":"last"}`:       "last",
		`{"msg":"<&>","n":9007199254740993}`: "<&>",
	} {
		var text strings.Builder
		var got struct {
			Line   string `json:"line"`
			Record struct {
				Message string `json:"msg"`
				N       int64  `json:"n"`
			} `json:"record"`
		}
		err := output.Print(&text, output.YAML, output.NewLogLine(line), time.Time{})
		if err == nil {
			err = yaml.Unmarshal([]byte(text.String()), &got)
		}
		if err != nil || got.Line != line || got.Record.Message != want || strings.Contains(line, `"n"`) && got.Record.N != 9007199254740993 {
			t.Errorf("%s: %v\n%s", line, err, text.String())
		}
	}
}
