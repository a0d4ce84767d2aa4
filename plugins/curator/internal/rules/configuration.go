package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// schemaName is how a role's schema is called while it is compiled. Nothing is ever loaded from it.
const schemaName = "reeve:configuration"

// Configuration checks a role's configuration: a JSON object that fits the schema of the role's manifest. An empty one is none, and is
// right for every role. role may be nil: then only the form is checked.
func Configuration(field, document string, role *rolev1.RoleManifest) (problems Problems) {
	if document == "" {
		return nil
	}
	if len(document) > MaxConfiguration {
		problems.add(field, "the configuration has %d bytes, at most %d fit", len(document), MaxConfiguration)
		return problems
	}
	if err := object(document); err != nil {
		problems.add(field, "the configuration is not a JSON object: %v", err)
		return problems
	}
	if role.GetConfigurationSchema() == "" {
		// The manifest does not say what is right: the role itself does, when it starts.
		return nil
	}
	compiled, err := compile(role.GetConfigurationSchema())
	if err != nil {
		problems.add(field, "the schema in the manifest of role %q cannot be used: %v", role.GetName(), err)
		return problems
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		problems.add(field, "the configuration is not a JSON object: %v", err)
		return problems
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(instance); errors.As(err, &invalid) {
		flatten(invalid, func(cause *jsonschema.ValidationError) {
			problems.add(field+pointer(cause.InstanceLocation), "%s", misfit(cause.ErrorKind))
		})
	} else if err != nil {
		problems.add(field, "the configuration cannot be held against the schema of role %q", role.GetName())
	}
	return problems
}

// Assignments checks the form of a list of roles that a node is to run: names, sizes, no role twice.
func Assignments(field string, assignments []*clusterv1.RoleAssignment) (problems Problems) {
	if len(assignments) > MaxRoles {
		problems.add(field, "there are %d roles, a node runs at most %d", len(assignments), MaxRoles)
		return problems
	}
	seen := make(map[string]bool)
	for i, assignment := range assignments {
		at := fmt.Sprintf("%s[%d]", field, i)
		problems.name(at+".role", "role", assignment.GetRole())
		if seen[assignment.GetRole()] {
			problems.add(at+".role", "the role %s is listed twice", quote(assignment.GetRole()))
		}
		seen[assignment.GetRole()] = true
		problems = append(problems, Configuration(at+".configuration", assignment.GetConfiguration(), nil)...)
	}
	return problems
}

// RoleName checks the name of a role in a request.
func RoleName(field, name string) (problems Problems) {
	problems.name(field, "role", name)
	return problems
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

// schema checks that a role's schema can be used, when the plugin comes into the catalog and not when somebody needs it.
func schema(field, document string) (problems Problems) {
	if document == "" {
		return nil
	}
	if len(document) > limits.Schema {
		problems.add(field, "the schema has %d bytes, at most %d fit", len(document), limits.Schema)
		return problems
	}
	if _, err := compile(document); err != nil {
		problems.add(field, "it is not a JSON Schema (draft 2020-12) that stands by itself: %v", err)
	}
	return problems
}

func compile(document string) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(document)))
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

// noLoader refuses every reference out of a schema: a plugin must not make the curator read files or call servers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and a schema must stand by itself", quote(url))
}

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
