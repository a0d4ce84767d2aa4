package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// schemaName is how a role's schema is called while it is compiled. Nothing is ever loaded from it.
const schemaName = "reeve:configuration"

// Problem is something wrong with a configuration.
type Problem struct {
	// Path is the JSON Pointer to the part that is wrong; empty: the whole.
	Path string
	// Message says what is wrong.
	Message string
}

// Check returns all that is wrong with a role's configuration, which is a JSON object that fits the schema of the role's manifest. An empty one is none, and is right for
// every role. role may be nil: then only the form is checked.
func Check(document string, role *rolev1.RoleManifest) (problems []Problem) {
	whole := func(format string, arguments ...any) []Problem {
		return []Problem{{Message: fmt.Sprintf(format, arguments...)}}
	}
	if document == "" {
		return nil
	}
	if len(document) > limits.Configuration {
		return whole("the configuration has %d bytes, at most %d fit", len(document), limits.Configuration)
	}
	if err := object(document); err != nil {
		return whole("the configuration is not a JSON object: %v", err)
	}
	if role.GetConfigurationSchema() == "" {
		// The manifest does not say what is right: the role itself does, when it starts.
		return nil
	}
	compiled, err := compile(role.GetConfigurationSchema())
	if err != nil {
		return whole("the schema in the manifest of role %q cannot be used: %v", role.GetName(), err)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		return whole("the configuration is not a JSON object: %v", err)
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(instance); errors.As(err, &invalid) {
		flatten(invalid, func(cause *jsonschema.ValidationError) {
			problems = append(problems, Problem{Path: pointer(cause.InstanceLocation), Message: misfit(cause.ErrorKind)})
		})
	} else if err != nil {
		return whole("the configuration cannot be held against the schema of role %q", role.GetName())
	}
	return problems
}

// CheckSchema returns why a role's schema cannot be used; nil: it can.
func CheckSchema(document string) error {
	_, err := compile(document)
	return err
}

func object(document string) error {
	decoder := json.NewDecoder(strings.NewReader(document))
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		return errors.New("it does not begin with '{'")
	}
	if !json.Valid([]byte(document)) {
		var into any
		return json.Unmarshal([]byte(document), &into)
	}
	return nil
}

func compile(document string) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaName, parsed); err != nil {
		return nil, err
	}
	return compiler.Compile(schemaName)
}

// noLoader refuses every reference out of a schema: a plugin must not make others read files or call servers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and a schema must stand by itself", quote(url))
}

// quote shows a string of a schema in a message without letting it grow the message.
func quote(s string) string { return fmt.Sprintf("%q", limits.Cut(s, 64)) }

// flatten calls visit for the causes that have none themselves.
func flatten(invalid *jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	if len(invalid.Causes) == 0 {
		visit(invalid)
		return
	}
	for _, cause := range invalid.Causes {
		flatten(cause, visit)
	}
}

// pointer writes a location as a JSON Pointer.
func pointer(location []string) string {
	var path strings.Builder
	for _, token := range location {
		path.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return path.String()
}
