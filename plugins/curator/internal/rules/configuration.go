package rules

import (
	"fmt"

	"github.com/reeveproject/reeve/proto/configuration"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Configuration checks a role's configuration: a JSON object that fits the schema of the role's manifest. An empty one is none, and is
// right for every role. role may be nil: then only the form is checked.
func Configuration(field, document string, role *rolev1.RoleManifest) (problems Problems) {
	for _, problem := range configuration.Check(document, role) {
		problems.add(field+problem.Path, "%s", problem.Message)
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

// schema checks that a role's schema can be used, when the plugin comes into the catalog and not when somebody needs it.
func schema(field, document string) (problems Problems) {
	if document == "" {
		return nil
	}
	if len(document) > limits.Schema {
		problems.add(field, "the schema has %d bytes, at most %d fit", len(document), limits.Schema)
		return problems
	}
	if err := configuration.CheckSchema(document); err != nil {
		problems.add(field, "it is not a JSON Schema (draft 2020-12) that stands by itself: %v", err)
	}
	return problems
}
