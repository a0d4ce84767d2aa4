package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// errNeither says that a document has none of the formats.
var errNeither = errors.New("it is neither text (YAML or JSON, in UTF-8) nor a protobuf message reeve.node.v1.Parameters")

// Parse parses and checks a document in YAML, JSON or binary protobuf, which it tells by the content. name is only for messages.
func Parse(name string, document []byte) (*nodev1.Parameters, error) {
	if len(document) > maxSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxSize)
	}
	if len(bytes.TrimSpace(document)) == 0 {
		return nil, errors.New("it is empty")
	}
	parse := parseBinary
	if isText(document) {
		parse = func(document []byte) (*nodev1.Parameters, error) { return parseText(name, document) }
	}
	parameters, err := parse(document)
	if err != nil {
		return nil, redactTickets(document, redactKeys(err))
	}
	return parameters, nil
}

// recoveryKey matches an age identity.
var recoveryKey = regexp.MustCompile(`(?i)age-secret-key-[0-9a-z-]*`)

// redactKeys removes a recovery key from an error. It does not belong in parameters, but a parser would quote its line.
func redactKeys(err error) error {
	text := err.Error()
	if shown := recoveryKey.ReplaceAllString(text, "AGE-SECRET-KEY-(not shown)"); shown != text {
		return errors.New(shown + "\nIt contains a recovery key, which must be kept offline: treat it as leaked and make another one (`reeve recovery-key new`)")
	}
	return err
}

var (
	// ticketText matches a ticket, and a field that should hold one.
	ticketText = regexp.MustCompile(`(?i)reeve1\.\S*|(\bticket["']?\s*:).*`)
	// longWord matches a ticket that was broken into lines or has lost its beginning.
	longWord = regexp.MustCompile(`[0-9A-Za-z_-]{24,}`)
)

// redactTickets removes a ticket from an error, which may quote its line.
func redactTickets(document []byte, err error) error {
	if !bytes.Contains(document, []byte("ticket")) && !bytes.Contains(document, []byte(ticket.Prefix)) {
		return err
	}
	text := ticketText.ReplaceAllString(err.Error(), "$1 (a ticket is not shown)")
	if shown := longWord.ReplaceAllString(text, "(not shown)"); shown != err.Error() {
		return errors.New(shown)
	}
	return err
}

// isText tells YAML and JSON from protobuf. Text has no control characters other than tab and line ends. A protobuf message of parameters always has
// one: the tag of the required field `directories` is the byte 0x12.
func isText(document []byte) bool {
	if !utf8.Valid(document) {
		return false
	}
	return !bytes.ContainsFunc(document, func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
	})
}

// parseText parses YAML and JSON, which is nearly a subset of YAML.
func parseText(name string, document []byte) (*nodev1.Parameters, error) {
	if json.Valid(document) {
		document = yamlOfJSON(document)
	}
	documents := yaml.NewDecoder(bytes.NewReader(document))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty except for comments")
	} else if err == nil && !errors.Is(documents.Decode(&second), io.EOF) {
		return nil, errors.New("it contains more than one YAML document: write the parameters of one node as one document")
	}
	parameters := &nodev1.Parameters{}
	if err := (protoyaml.UnmarshalOptions{Path: filepath.Base(name), Validator: rules{}}).Unmarshal(document, parameters); err != nil {
		return nil, err
	}
	return parameters, nil
}

// yamlOfJSON rewrites JSON as YAML with the same meaning, and keeps each line and nearly each column. JSON has things that YAML lacks: tabs between
// tokens, the escape \/, surrogate pairs, and line separators in strings that YAML would fold.
func yamlOfJSON(document []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(document); i++ {
		switch b := document[i]; b {
		case '\t':
			out.WriteByte(' ')
		case '"':
			end := i + 1
			for ; document[end] != '"'; end++ {
				if document[end] == '\\' {
					end++
				}
			}
			out.Write(yamlOfString(document[i : end+1]))
			i = end
		default:
			out.WriteByte(b)
		}
	}
	return out.Bytes()
}

// yamlOfString rewrites a JSON string, with its quotes, as a double-quoted YAML string.
func yamlOfString(literal []byte) []byte {
	plain := !bytes.ContainsFunc(literal, func(r rune) bool { return r == '\\' || r >= utf8.RuneSelf })
	var text string
	if plain || json.Unmarshal(literal, &text) != nil {
		return literal
	}
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < 0x20 || r >= 0x7f:
			fmt.Fprintf(&out, `\U%08X`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return []byte(out.String())
}

// parseBinary parses protobuf.
func parseBinary(document []byte) (*nodev1.Parameters, error) {
	parameters := &nodev1.Parameters{}
	// Almost any input parses as unknown fields, but without a version.
	if err := proto.Unmarshal(document, parameters); err != nil || parameters.GetVersion() == "" {
		return nil, errNeither
	}
	var problems []error
	for _, place := range unknownFields("", parameters.ProtoReflect()) {
		problems = append(problems, fmt.Errorf("%s: this version of reeved does not know it", place))
	}
	err := rules{}.Validate(parameters)
	var violations *protovalidate.ValidationError
	switch {
	case errors.As(err, &violations):
		for _, violation := range violations.Violations {
			problems = append(problems, fmt.Errorf("%s: %s", protovalidate.FieldPathString(violation.Proto.GetField()), violation.Proto.GetMessage()))
		}
	case err != nil:
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return parameters, nil
}

// unknownFields returns the paths of unknown fields in the order of the message. A setting must not be ignored silently.
func unknownFields(at string, message protoreflect.Message) []string {
	var places []string
	for rest := message.GetUnknown(); len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size <= 0 { // impossible in a parsed message
			break
		}
		places = append(places, fmt.Sprintf("%sfield %d", at, number))
		rest = rest[size:]
	}
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Message() == nil || !message.Has(field) {
			continue
		}
		name, value := at+string(field.Name()), message.Get(field)
		switch {
		case field.IsMap():
			if field.MapValue().Message() == nil {
				continue
			}
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				places = append(places, unknownFields(fmt.Sprintf("%s[%q].", name, key.String()), value.Message())...)
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				places = append(places, unknownFields(fmt.Sprintf("%s[%d].", name, i), value.List().Get(i).Message())...)
			}
		default:
			places = append(places, unknownFields(name+".", value.Message())...)
		}
	}
	return places
}
