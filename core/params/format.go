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

// errNeither says that a document is in none of the formats.
var errNeither = errors.New("it is neither text (YAML or JSON, in UTF-8) nor a protobuf message reeve.node.v1.Parameters")

// Parse reads and checks a parameters document: YAML, JSON or binary protobuf, which its content tells. Name is used in messages only.
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
		return nil, withoutTickets(document, withoutKeys(err))
	}
	return parameters, nil
}

// recoveryKey is what an age identity looks like.
var recoveryKey = regexp.MustCompile(`(?i)age-secret-key-[0-9a-z-]*`)

// withoutKeys is an error that shows no recovery key. It does not belong into parameters, and where it stands by mistake its line would be shown.
func withoutKeys(err error) error {
	text := err.Error()
	if shown := recoveryKey.ReplaceAllString(text, "AGE-SECRET-KEY-(not shown)"); shown != text {
		return errors.New(shown + "\nThere is a recovery key in it, which is to be kept offline: take it for lost and make another one (`reeve recovery-key new`)")
	}
	return err
}

var (
	// ticketText is what a ticket looks like, and what is said to be one.
	ticketText = regexp.MustCompile(`(?i)reeve1\.\S*|(\bticket["']?\s*:).*`)
	// longWord is what a ticket looks like that was broken into lines, or has lost its beginning.
	longWord = regexp.MustCompile(`[0-9A-Za-z_-]{24,}`)
)

// withoutTickets is an error that shows no ticket, of whose line there may be something wrong.
func withoutTickets(document []byte, err error) error {
	if !bytes.Contains(document, []byte("ticket")) && !bytes.Contains(document, []byte(ticket.Prefix)) {
		return err
	}
	text := ticketText.ReplaceAllString(err.Error(), "$1 (a ticket is not shown)")
	if shown := longWord.ReplaceAllString(text, "(not shown)"); shown != err.Error() {
		return errors.New(shown)
	}
	return err
}

// isText tells YAML and JSON from protobuf. Neither of the two may have a control character other than tab and line ends in it, and a protobuf
// message of parameters always has one: the tag of the field `directories`, without which there are none, is the byte 0x12.
func isText(document []byte) bool {
	if !utf8.Valid(document) {
		return false
	}
	return !bytes.ContainsFunc(document, func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
	})
}

// parseText reads YAML, of which JSON is nearly a part.
func parseText(name string, document []byte) (*nodev1.Parameters, error) {
	if json.Valid(document) {
		document = yamlOfJSON(document)
	}
	documents := yaml.NewDecoder(bytes.NewReader(document))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty: there is nothing in it but comments")
	} else if err == nil && !errors.Is(documents.Decode(&second), io.EOF) {
		return nil, errors.New("there is more than one YAML document in it: it holds the parameters of one node, in one document")
	}
	parameters := &nodev1.Parameters{}
	if err := (protoyaml.UnmarshalOptions{Path: filepath.Base(name), Validator: rules{}}).Unmarshal(document, parameters); err != nil {
		return nil, err
	}
	return parameters, nil
}

// yamlOfJSON writes a JSON document as YAML that means the same, with each line and nearly each column where it was. JSON has things that YAML has not: tabs
// between the parts, the escape \/, characters beyond U+FFFF as two escapes, and some line separators in strings that YAML would fold.
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

// yamlOfString writes a JSON string, quotes included, as a double-quoted YAML string.
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

// parseBinary reads protobuf.
func parseBinary(document []byte) (*nodev1.Parameters, error) {
	parameters := &nodev1.Parameters{}
	// Almost anything can be taken for fields that are not known; a version cannot.
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

// unknownFields returns the places of fields that do not exist, in the order of the message: something that was asked for must not be left out without a word.
func unknownFields(at string, message protoreflect.Message) []string {
	var places []string
	for rest := message.GetUnknown(); len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size <= 0 { // which a message that was read has not
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
