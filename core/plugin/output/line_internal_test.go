package output

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/reeveproject/reeve/core/inorder"
)

func TestLineText(t *testing.T) {
	t.Parallel()
	for line, want := range inorder.Of(map[string]string{
		"hello": "hello",
		"":      "",
		`{"@level":"warn","@message":"m","a":"v"}`: "m",
		`{"@message":"m","error":"e","err":"f"}`:   "m: f",
		`{"@message":"m","err":"f","error":5}`:     "m: f",
		`{"@message": 5}`:                          `{"@message": 5}`,
		`["@message"]`:                             `["@message"]`,
		`{"@message":"m"}{}`:                       `{"@message":"m"}{}`,
		`{"@message":null}`:                        `{"@message":null}`,
		"a\x00\x1b[2J\u202eb\xff\u00e4\r\n":        `a\x00\x1b[2J\u202eb\xff` + "\u00e4",
		`{"@message":"a\nb","err":"\u001b"}`:       `a\nb: \x1b`,
	}) {
		if got := lineText([]byte(line)); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzLineText(f *testing.F) {
	for _, seed := range []string{
		"", "{", `{"@message": 5}`, `{"@message":"m","@level":"error","role":"x","err":{"b":null}}`, "\x00\xff\u202e", strings.Repeat("[", 9000),
		`{"@message":"` + strings.Repeat("x", maxLine), "panic: \r\n", `{"@message":"m","error":"é"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		text := lineText(line)
		if !bytes.Equal(before, line) {
			t.Error("the line was changed")
		}
		// Every byte may become an escape of four, and no more.
		if len(text) > 5*maxLine || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Errorf("text %q", text)
		}
	})
}
