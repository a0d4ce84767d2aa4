package role

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// ConfigurationError lists everything that is wrong with a configuration. The zero value is ready for Add.
type ConfigurationError struct {
	Problems []ConfigurationProblem
}

// ConfigurationProblem is one thing that is wrong with a configuration.
type ConfigurationProblem struct {
	// Path is a JSON Pointer (RFC 6901); empty for the whole document.
	Path string
	// Message says what is wrong and what would be right.
	Message string
}

// Add adds a problem.
func (e *ConfigurationError) Add(path, format string, arguments ...any) {
	e.Problems = append(e.Problems, ConfigurationProblem{Path: path, Message: fmt.Sprintf(format, arguments...)})
}

// Err returns e if it holds a problem, and nil otherwise.
func (e *ConfigurationError) Err() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Error lists the problems, one per line if there are several.
func (e *ConfigurationError) Error() string {
	lines := make([]string, len(e.Problems))
	for n, problem := range e.Problems {
		lines[n] = problem.Message
		if problem.Path != "" {
			lines[n] = problem.Path + ": " + problem.Message
		}
	}
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return "configuration:\n\t" + strings.Join(lines, "\n\t")
}

// refused returns the gRPC status with which Start refuses a configuration.
func refused(err error) error {
	var problems *ConfigurationError
	if !errors.As(err, &problems) || len(problems.Problems) == 0 {
		problems = &ConfigurationError{}
		problems.Add("", "%s", err)
	}
	details := make([]protoadapt.MessageV1, len(problems.Problems))
	for n, problem := range problems.Problems {
		details[n] = protoadapt.MessageV1Of(&rolev1.ConfigurationProblem{
			Path:    strings.ToValidUTF8(problem.Path, "\uFFFD"),
			Message: strings.ToValidUTF8(problem.Message, "\uFFFD"),
		})
	}
	refusal := status.New(codes.InvalidArgument, strings.ToValidUTF8(problems.Error(), "\uFFFD"))
	detailed, err := refusal.WithDetails(details...)
	if err != nil {
		return refusal.Err()
	}
	return detailed.Err()
}
