package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func configurationChecks() []Check {
	withSchema := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, hasSchema, "no role has a configuration schema")
	}
	return []Check{
		{
			ID:    "configuration.refused",
			needs: []string{"lifecycle.start"},
			Sentence: "Start refuses, with InvalidArgument, every configuration that breaks the role's schema; the suite breaks each constraint once. The owner reads the schema, so the role must accept " +
				"nothing beyond it.",
			absent: withSchema,
			run:    checkRefused,
		},
		{
			ID:       "configuration.paths",
			needs:    []string{"configuration.refused"},
			Sentence: "The refusal has a ConfigurationProblem with the path, as a JSON Pointer, of the value that breaks the constraint: whoever wrote the configuration is shown where.",
			absent:   withSchema,
			run:      checkPaths,
		},
		{
			ID:       "configuration.all",
			needs:    []string{"configuration.paths"},
			Sentence: "If several members have the wrong type, the refusal names all of them. Otherwise the author has to start the role once for every mistake.",
			absent: func(manifest *rolev1.Manifest) string {
				return noneOf(manifest, func(of *rolev1.RoleManifest) bool {
					_, paths := wrongTypes(of)
					return len(paths) > 1
				}, "no role has a configuration with two members whose type is said")
			},
			run: checkAll,
		},
		{
			ID:       "configuration.no-json",
			needs:    []string{"lifecycle.start"},
			Sentence: "Start refuses a configuration that is not JSON, with InvalidArgument. A role must not guess what half a document means.",
			run:      checkNoJSON,
		},
		{
			ID:       "configuration.none",
			needs:    []string{"lifecycle.start"},
			Sentence: "A role without a configuration schema refuses every configuration that sets something, with InvalidArgument. The author would otherwise believe that the setting has an effect.",
			absent: func(manifest *rolev1.Manifest) string {
				return noneOf(manifest, func(of *rolev1.RoleManifest) bool { return !hasSchema(of) }, "every role has a configuration schema")
			},
			run: checkNone,
		},
	}
}

func hasSchema(of *rolev1.RoleManifest) bool { return of.GetConfigurationSchema() != "" }

// configuration returns the configuration to start a role with; empty if none.
func (s *subject) configuration(of *rolev1.RoleManifest) (string, error) {
	if text, given := s.config.Configurations[of.GetName()]; given {
		return text, nil
	}
	if !hasSchema(of) {
		return "", nil
	}
	base, err := s.base(of)
	if err != nil {
		return "", err
	}
	if members, isObject := base.(map[string]any); isObject && len(members) == 0 {
		return "", nil
	}
	return document(base), nil
}

// base returns a configuration that matches a role's schema.
func (s *subject) base(of *rolev1.RoleManifest) (any, error) {
	schema, err := readSchema(of.GetConfigurationSchema())
	if err != nil {
		return nil, err
	}
	if text, given := s.config.Configurations[of.GetName()]; given && text != "" {
		value, err := parse(text)
		if err == nil && !schema.fits(value) {
			err = errors.New("it does not fit the schema")
		}
		if err != nil {
			return nil, fmt.Errorf("the configuration that was given cannot be used: %w", err)
		}
		return value, nil
	}
	for _, value := range []any{map[string]any{}, schema.object(schema.resolve(schema.root), 0)} {
		if schema.fits(value) {
			return value, nil
		}
	}
	if value, ok := schema.example(schema.root, func(value any) any { return value }, 0); ok {
		return value, nil
	}
	return nil, errors.New("no configuration was found that fits its schema: give one")
}

// refused is Start's refusal of a configuration.
type refused struct {
	problems []*rolev1.ConfigurationProblem
	err      error
}

// refusal returns the problems in Start's refusal of a configuration, or what is wrong with the answer. It asks once per configuration, because two
// checks use the same answers.
func (s *subject) refusal(ctx context.Context, of *rolev1.RoleManifest, configuration string) ([]*rolev1.ConfigurationProblem, error) {
	key := of.GetName() + "\n" + configuration
	if known, asked := s.refusals[key]; asked {
		return known.problems, known.err
	}
	problems, err := s.ask(ctx, of, configuration)
	if ctx.Err() == nil {
		s.refusals[key] = refused{problems, err}
	}
	return problems, err
}

func (s *subject) ask(ctx context.Context, of *rolev1.RoleManifest, configuration string) ([]*rolev1.ConfigurationProblem, error) {
	data, err := s.directory()
	if err != nil {
		return nil, err
	}
	p, request, err := s.prepare(ctx, of, data, configuration)
	if err != nil {
		return nil, err
	}
	answer := p.callStart(ctx, request)
	err = s.end(p)
	switch code := status.Code(answer); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case code == codes.OK:
		return nil, errors.New("it is accepted")
	case code != codes.InvalidArgument:
		return nil, fmt.Errorf("it is refused with %s, want %s", code, codes.InvalidArgument)
	}
	var problems []*rolev1.ConfigurationProblem
	for _, detail := range status.Convert(answer).Details() {
		if problem, ok := detail.(*rolev1.ConfigurationProblem); ok {
			problems = append(problems, problem)
		}
	}
	return problems, nil
}

// eachViolation makes every role with a schema refuse every violation of it.
func (s *subject) eachViolation(ctx context.Context, judge func(violation, []*rolev1.ConfigurationProblem, error) error) (string, error) {
	tried, notTried := 0, []string{}
	err := s.eachRole(func(of *rolev1.RoleManifest) error {
		if !hasSchema(of) {
			return nil
		}
		schema, err := readSchema(of.GetConfigurationSchema())
		if err != nil {
			return err
		}
		base, err := s.base(of)
		if err != nil {
			return err
		}
		found, untried := schema.violations(base)
		for _, missed := range untried {
			notTried = append(notTried, of.GetName()+": "+missed)
		}
		var problems []error
		for _, broken := range found {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			tried++
			said, err := s.refusal(ctx, of, broken.document)
			if err := judge(broken, said, err); err != nil {
				problems = append(problems, fmt.Errorf("%s (%s): %w", broken, broken.document[:min(len(broken.document), 200)], err))
			}
		}
		return errors.Join(problems...)
	})
	told := fmt.Sprintf("%d constraints", tried)
	if len(notTried) > 0 {
		told += fmt.Sprintf("; for %d no value was found that breaks them: %s", len(notTried), strings.Join(notTried, ", "))
	}
	return told, err
}

func checkRefused(ctx context.Context, s *subject) (string, error) {
	return s.eachViolation(ctx, func(_ violation, _ []*rolev1.ConfigurationProblem, err error) error { return err })
}

func checkPaths(ctx context.Context, s *subject) (string, error) {
	return s.eachViolation(ctx, func(broken violation, problems []*rolev1.ConfigurationProblem, err error) error {
		if err != nil {
			return err
		}
		var paths []string
		for _, problem := range problems {
			// The problem may name a value within the list or object.
			for _, accepted := range broken.accepted {
				if problem.GetPath() == accepted || accepted != "" && strings.HasPrefix(problem.GetPath(), accepted+"/") {
					return nil
				}
			}
			paths = append(paths, orDocument(problem.GetPath()))
		}
		if len(paths) == 0 {
			return errors.New("the refusal has no ConfigurationProblem")
		}
		return fmt.Errorf("the refusal names only %s", strings.Join(paths, ", "))
	})
}

// wrongTypes returns a configuration in which every member has a wrong type, and the members' paths.
func wrongTypes(of *rolev1.RoleManifest) (string, []string) {
	schema, err := readSchema(of.GetConfigurationSchema())
	if err != nil {
		return "", nil
	}
	root := schema.resolve(schema.root)
	properties, _ := root["properties"].(map[string]any)
	wrong := any(map[string]any{})
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		types := typesOf(schema.resolve(properties[name]))
		if len(types) == 0 {
			continue
		}
		for _, value := range others() {
			if slices.Contains(schema.misfits(with(map[string]any{}, name, value)), misfit{join("", name), "type"}) {
				wrong = with(wrong, name, value)
				paths = append(paths, join("", name))
				break
			}
		}
	}
	return document(wrong), paths
}

func checkAll(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		configuration, paths := wrongTypes(of)
		if len(paths) < 2 {
			return nil
		}
		problems, err := s.refusal(ctx, of, configuration)
		if err != nil {
			return fmt.Errorf("%s: %w", configuration, err)
		}
		for _, problem := range problems {
			paths = slices.DeleteFunc(paths, func(path string) bool {
				return problem.GetPath() == path || strings.HasPrefix(problem.GetPath(), path+"/")
			})
		}
		if len(paths) > 0 {
			return fmt.Errorf("%s: the refusal does not name %s", configuration, strings.Join(paths, ", "))
		}
		return nil
	})
}

func checkNoJSON(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		const half = `{"a`
		if _, err := s.refusal(ctx, of, half); err != nil {
			return fmt.Errorf("%s: %w", half, err)
		}
		return nil
	})
}

func checkNone(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		if hasSchema(of) {
			return nil
		}
		set := document(with(nil, noSuchField, true))
		if _, err := s.refusal(ctx, of, set); err != nil {
			return fmt.Errorf("%s: %w", set, err)
		}
		return nil
	})
}

// detailsHave reports whether a text occurs in the problems of a refusal.
func detailsHave(refusal error, text string) bool {
	for _, detail := range status.Convert(refusal).Details() {
		if problem, ok := detail.(*rolev1.ConfigurationProblem); ok && strings.Contains(problem.GetPath()+"\n"+problem.GetMessage(), text) {
			return true
		}
	}
	return false
}
