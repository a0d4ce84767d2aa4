package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The roles: one with a configuration, and one without, which only some mutants offer.
const (
	mutant = "mutant"
	bare   = "bare"
)

// schemaText has a constraint of every kind that roles use.
const schemaText = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "workers": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
    "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.5},
    "pages": {"type": "integer", "multipleOf": 4, "default": 8},
    "name": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[a-z]+$"},
    "mode": {"enum": ["fast", "slow"]},
    "kind": {"const": "only"},
    "either": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 4}]},
    "token": {"type": "string", "minLength": 1, "writeOnly": true},
    "peers": {"type": "array", "items": {"$ref": "#/$defs/peer"}, "minItems": 1, "maxItems": 3, "uniqueItems": true}
  },
  "$defs": {
    "peer": {"type": "object", "additionalProperties": false, "required": ["host"], "properties": {"host": {"type": "string", "pattern": "[.]example$"}, "port": {"type": "integer", "minimum": 1, "maximum": 65535}}}
  }
}`

func manifest() *rolev1.Manifest {
	m := &rolev1.Manifest{
		Name: "mutant", Version: "0.1.0", Protocols: []string{"reeve.role.v1", "reeve.host.v1"},
		Roles: []*rolev1.RoleManifest{
			{Name: mutant, Summary: "has at most one fault", ConfigurationSchema: schemaText, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_TOLD},
		},
	}
	keeping := &rolev1.RoleManifest{Name: keeper, Summary: "keeps a key in the store", ConsensusUser: keeper, Requires: []string{"reeve.consensus.v1"}}
	serving := &rolev1.RoleManifest{Name: server, Summary: "listens on a port", Grants: []*rolev1.Grant{{Name: "listen", Parameters: map[string]string{"port": "any"}}}}
	stewarding := &rolev1.RoleManifest{Name: steward, Summary: "names the machine", Grants: []*rolev1.Grant{{Name: "set-hostname", Parameters: map[string]string{"path": "/etc/hostname"}}}}
	switch {
	case ofStore():
		m.Roles = []*rolev1.RoleManifest{keeping}
	case faults.OfServer()[fault] != "":
		m.Roles = []*rolev1.RoleManifest{serving}
	case faults.OfSteward()[fault] != "":
		m.Roles = []*rolev1.RoleManifest{stewarding}
	}
	switch fault {
	case faults.Blocked:
		serving.Grants = append(serving.Grants, &rolev1.Grant{Name: "connect", Parameters: map[string]string{"port": "any"}})
		m.Roles = []*rolev1.RoleManifest{stewarding, serving}
	case faults.StopsLate:
		m.Roles[0].StopGrace = durationpb.New(time.Second)
	case faults.None:
		m.Roles = append(m.Roles, &rolev1.RoleManifest{Name: bare, Summary: "takes no configuration"}, keeping, serving, stewarding)
	case faults.OtherPort:
		serving.Grants[0].Parameters["port"] = "1"
	case faults.SpawnsAnyway:
		m.Roles[0].GivesUp = []string{"processes"}
	case faults.BareIsConfigured:
		// Every role is tested by itself: the others are spared the time.
		m.Roles = append(m.Roles, &rolev1.RoleManifest{Name: bare, Summary: "takes no configuration"})
	case faults.NoProtocol:
		m.Protocols = []string{"reeve.host.v1"}
	case faults.BadVersion:
		m.Version = "v1"
	case faults.UnknownGrant:
		m.Roles[0].Grants = []*rolev1.Grant{{Name: "everything"}}
	case faults.BadSchema:
		m.Roles[0].ConfigurationSchema = `{"type": "nothing"}`
	case faults.OutsideSchema:
		m.Roles[0].ConfigurationSchema = `{"$ref": "https://schemas.example/role"}`
	case faults.ManifestChanges:
		m.Roles[0].Summary += fmt.Sprintf(" (%d)", os.Getpid())
	case faults.ManifestLies:
		m.Roles = append(m.Roles, &rolev1.RoleManifest{Name: "ghost"})
	}
	return m
}

// checkConfiguration returns the refusal of a configuration that is wrong, as a gRPC status.
func checkConfiguration(request *rolev1.StartRequest) error {
	text := request.GetConfiguration()
	if text == "" {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		if fault == faults.TakesHalf {
			return nil
		}
		return refused(&rolev1.ConfigurationProblem{Message: "it is no JSON"})
	}
	if request.GetRole() != mutant {
		if members, _ := value.(map[string]any); len(members) == 0 || fault == faults.BareIsConfigured {
			return nil
		}
		return refused(&rolev1.ConfigurationProblem{Message: "the role takes no configuration"})
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schemaText))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mutant:schema", parsed); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(compiler.MustCompile("mutant:schema").Validate(value), &invalid) {
		return nil
	}
	return refused(problemsOf(invalid, text)...)
}

// problemsOf are those of the places that have none within.
func problemsOf(invalid *jsonschema.ValidationError, document string) (problems []*rolev1.ConfigurationProblem) {
	if len(invalid.Causes) > 0 {
		for _, cause := range invalid.Causes {
			problems = append(problems, problemsOf(cause, document)...)
		}
		return problems
	}
	keyword := strings.Join(invalid.ErrorKind.KeywordPath(), "/")
	if fault == faults.TakesTooLittle && keyword == "minimum" || fault == faults.TakesUnknown && keyword == "additionalProperties" {
		return nil
	}
	path := ""
	for _, token := range invalid.InstanceLocation {
		path += "/" + token
	}
	message := "it does not keep " + keyword
	if fault == faults.QuotesSecret {
		message += " in " + document
	}
	return []*rolev1.ConfigurationProblem{{Path: path, Message: message}}
}

func refused(problems ...*rolev1.ConfigurationProblem) error {
	if len(problems) == 0 {
		return nil
	}
	code := codes.InvalidArgument
	switch fault {
	case faults.OtherRefusal:
		if problems[0].GetPath() != "" {
			code = codes.Internal
		}
	case faults.NoPaths:
		return status.Error(code, "the configuration is wrong")
	case faults.FirstProblem:
		problems = problems[:1]
	}
	var details []protoadapt.MessageV1
	for _, problem := range problems {
		details = append(details, protoadapt.MessageV1Of(problem))
	}
	refusal, err := status.New(code, "the configuration is wrong").WithDetails(details...)
	if err != nil {
		return err
	}
	return refusal.Err()
}
