package plugin

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/inorder"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for name, test := range inorder.Of(map[string]struct {
		line string
		want logLine
	}{
		"plain":        {"hello", logLine{level: hclog.Info, message: "hello"}},
		"empty":        {"", logLine{level: hclog.Info}},
		"hclog":        {`{"@level":"warn","@message":"m","@timestamp":"x","b":1.50,"a":"v"}`, logLine{level: hclog.Warn, message: "m", fields: []any{"a", "v", "b", "1.50"}}},
		"no level":     {`{"@message":"m"}`, logLine{level: hclog.Info, message: "m"}},
		"silent level": {`{"@level":"off","@message":"m"}`, logLine{level: hclog.Info, message: "m"}},
		"odd level":    {`{"@level":7,"@message":"m"}`, logLine{level: hclog.Info, message: "m"}},
		"odd message":  {`{"@message": 5}`, logLine{level: hclog.Info, message: `{"@message": 5}`}},
		"no object":    {`["@message"]`, logLine{level: hclog.Info, message: `["@message"]`}},
		"two objects":  {`{"@message":"m"}{}`, logLine{level: hclog.Info, message: `{"@message":"m"}{}`}},
		"null":         {`{"@message":null}`, logLine{level: hclog.Info, message: `{"@message":null}`}},
		"nested":       {`{"@message":"m","a":{"b":[1,"c"]},"d":null,"e":true}`, logLine{level: hclog.Info, message: "m", fields: []any{"a", `{"b":[1,"c"]}`, "d", "null", "e", true}}},
		"spoofed":      {`{"@message":"m","role":"curator","instance":"i"," x\n":"y"}`, logLine{level: hclog.Info, message: "m", fields: []any{"_x_", "y", "_instance", "i", "_role", "curator"}}},
		"controls":     {"a\x00\x1b[2J\u202eb\xff\u00e4", logLine{level: hclog.Info, message: `a\x00\x1b[2J\u202eb\xff` + "\u00e4"}},
		"in JSON":      {`{"@message":"a\nb","k":"\u001b"}`, logLine{level: hclog.Info, message: `a\nb`, fields: []any{"k", `\x1b`}}},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parseLine([]byte(test.line)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{
		"", "{", `{"@message": 5}`, `{"@message":"m","@level":"error","role":"x","a":{"b":null}}`, "\x00\xff\u202e", strings.Repeat("[", 9000),
		`{"@message":"` + strings.Repeat("x", maxLine), "panic: \r\n", `{"@message":"m","":1,"é":2,"@x":3}`,
	} {
		f.Add([]byte(seed))
	}
	reserved := map[string]bool{"role": true, "instance": true, "timestamp": true}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		parsed := parseLine(line)
		if !bytes.Equal(before, line) {
			t.Error("the line was changed")
		}
		switch parsed.level {
		case hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error:
		default:
			t.Errorf("level %v", parsed.level)
		}
		texts := []string{parsed.message, parsed.text()}
		if len(parsed.fields)%2 != 0 || len(parsed.fields) > 2*maxFields+2 {
			t.Errorf("%d fields", len(parsed.fields))
		}
		for i := 0; i+1 < len(parsed.fields); i += 2 {
			key := parsed.fields[i].(string)
			if key == "" || reserved[key] {
				t.Errorf("field %q", key)
			}
			texts = append(texts, key)
			if value, ok := parsed.fields[i+1].(string); ok {
				texts = append(texts, value)
			}
		}
		for _, text := range texts {
			// Every byte may become an escape of four, and no more.
			if len(text) > 5*maxLine || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
				t.Errorf("text %q", text)
			}
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) b) (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1\n"))
	f.Add([]byte(""))
	f.Add([]byte(")"))
	f.Add([]byte("1 (x) S"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if s, err := parseStat(content); err == nil && s.state == 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	s, err := parseStat([]byte("42 (a) b) (c) S 1 43 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1\n"))
	if err != nil || s != (stat{state: 'S', pgrp: 43, start: 777}) {
		t.Errorf("%+v, %v", s, err)
	}
}
