package plugin

import (
	"bytes"
	"encoding/json"

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
