package plugin

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reeveproject/reeve/proto/limits"
)

// maxLine is how much of a line is looked at, in bytes.
const maxLine = 8 << 10

// lineText is a line, which is anything that a role may write, as people read it in a reason: without control characters, and of a line of JSON as hclog writes it
// the message and the error.
func lineText(line []byte) string {
	line = bytes.TrimRight(line, "\r\n")
	var object struct {
		Message *string `json:"@message"`
		Error   any     `json:"error"`
		Err     any     `json:"err"`
	}
	if len(line) > maxLine {
		line = line[:maxLine]
	} else if json.Unmarshal(line, &object) == nil && object.Message != nil {
		text := *object.Message
		for _, value := range []any{object.Err, object.Error} {
			if failure, ok := value.(string); ok {
				text += ": " + failure
				break
			}
		}
		return clean(text)
	}
	return clean(string(line))
}

// clean escapes what a terminal or a log could take for something else than text: control characters, line ends, marks that turn the
// direction of writing, and bytes that are not UTF-8.
func clean(text string) string {
	if limits.Line(text) {
		return text
	}
	ok := func(r rune) bool { return r == ' ' || unicode.IsPrint(r) }
	var cleaned strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r != utf8.RuneError && ok(r) || r == utf8.RuneError && size > 1 {
			cleaned.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			cleaned.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return cleaned.String()
}

func cut(text string, size int) string { return limits.Cut(text, size) }
