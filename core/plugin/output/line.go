package output

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

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
		return limits.Clean(text)
	}
	return limits.Clean(string(line))
}

// LastLines are those of the lines that explain an end best: the last ones that are not empty, most of them at most and each of size bytes at most, and
// where a Go program panicked the message in place of the first.
func LastLines(lines []string, most, size int) []string {
	var last []string
	told := ""
	for _, line := range lines {
		if line = limits.Cut(line, size); line == "" {
			continue
		}
		if told == "" && tellsPanic(line) {
			told = line
		}
		last = append(last, line)
	}
	if len(last) <= most {
		return last
	}
	last = last[len(last)-most:]
	if told != "" && !slices.Contains(last, told) {
		last[0] = told
	}
	return last
}

// Headline is the line that says most about an end: where a Go program panicked the message, not the last line of its stack.
func Headline(lines []string) string {
	for _, line := range lines {
		if tellsPanic(line) {
			return line
		}
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i] != "" {
			return lines[i]
		}
	}
	return ""
}

func tellsPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}
