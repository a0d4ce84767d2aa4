package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// maxLogLine is the longest line in bytes that the core parses.
	maxLogLine = 8 << 10
	// idleTime is how long an idle role is watched, maxIdle how many bytes it may log by then: a start and some words a second.
	idleTime = 2 * time.Second
	maxIdle  = 256 << 10
)

func loggingChecks() []Check {
	return []Check{
		{
			ID:    "logging.structured",
			needs: []string{"lifecycle.stop"},
			Sentence: "Every line that a role writes to its standard error, from its start to its stop, is a JSON object with @level, @message and @timestamp, as hclog writes it: " +
				"who reads the log then has its level and fields, and the reason for which the role failed is its message and error.",
			run: checkStructured,
		},
		{
			ID:       "logging.lines",
			needs:    []string{"lifecycle.stop"},
			Sentence: fmt.Sprintf("No line of the log is longer than %d KiB: of what is longer, the core shows only the beginning in the reason for which the role failed, and that as plain text.", maxLogLine>>10),
			run:      checkLines,
		},
		{
			ID:       "logging.bounded",
			needs:    started(),
			Sentence: fmt.Sprintf("A role that has nothing to do writes at most %d KiB to its log within %s of its start: the log is bounded, and what floods it pushes out what others would look for.", maxIdle>>10, idleTime),
			run:      checkBounded,
		},
		{
			ID:    "logging.driven",
			needs: started("logging.bounded", "lifecycle.health", "lifecycle.metrics"),
			Sentence: fmt.Sprintf("Made to work as in resources.growth, a role logs at most %d KiB each time: the core asks for its health every few seconds, and changes of a directory of many nodes come as often.",
				maxDrivenLog>>10),
			run: ofDrivenLife(func(l *drivenLife) error { return l.talked }),
		},
		{
			ID:    "logging.secret",
			needs: []string{"lifecycle.stop"},
			Sentence: "A value that the schema marks as secret (writeOnly) appears neither in the log, nor in the status, nor in the refusal of a configuration that is wrong " +
				"elsewhere: all of them are shown to people who may not read the configuration.",
			absent: func(manifest *rolev1.Manifest) string {
				return noneOf(manifest, func(of *rolev1.RoleManifest) bool { return len(secretsOf(of)) > 0 }, "no member of a configuration that takes a text is marked writeOnly")
			},
			run: checkSecret,
		},
	}
}

// logOfLife returns what a role logs from its start to its end.
func (s *subject) logOfLife(ctx context.Context, of *rolev1.RoleManifest) (string, error) {
	i, err := s.settled(ctx, of, "")
	if err != nil {
		return "", err
	}
	if err := i.stopped(ctx); err != nil {
		return "", err
	}
	// First read its standard error to the end.
	if err := s.end(i.process); err != nil {
		return "", err
	}
	text, written := i.logged()
	if int64(len(text)) < written {
		text = text[:strings.LastIndexByte(text, '\n')+1] // the rest of the last line was not kept
	}
	return text, nil
}

// eachLine judges every line that a role logs.
func (s *subject) eachLine(ctx context.Context, judge func(string) error) (string, error) {
	count := 0
	err := s.eachRole(func(of *rolev1.RoleManifest) error {
		text, err := s.logOfLife(ctx, of)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			count++
			if err := judge(strings.TrimRight(line, "\r\n")); err != nil {
				return fmt.Errorf("it logs %q: %w", line[:min(len(line), 200)], err)
			}
		}
		return nil
	})
	return fmt.Sprintf("%d lines", count), err
}

func checkStructured(ctx context.Context, s *subject) (string, error) {
	return s.eachLine(ctx, func(line string) error {
		decoder := json.NewDecoder(strings.NewReader(line))
		var object map[string]any
		if err := decoder.Decode(&object); err != nil || decoder.More() {
			return errors.New("it is not one JSON object")
		}
		message, isText := object["@message"].(string)
		level, _ := object["@level"].(string)
		at, _ := object["@timestamp"].(string)
		switch {
		case !isText || message == "":
			return errors.New("it has no @message")
		case hclog.LevelFromString(level) == hclog.NoLevel:
			return errors.New("it has no @level that hclog knows")
		}
		for _, layout := range []string{hclog.TimeFormatJSON, time.RFC3339Nano} {
			if _, err := time.Parse(layout, at); err == nil {
				return nil
			}
		}
		return errors.New("its @timestamp is no time")
	})
}

func checkLines(ctx context.Context, s *subject) (string, error) {
	return s.eachLine(ctx, func(line string) error {
		if len(line) > maxLogLine {
			return fmt.Errorf("the line has %d bytes", len(line))
		}
		return nil
	})
}

func checkBounded(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachIdle(ctx, func(of *rolev1.RoleManifest, life *idleLife) error {
		if life.logged > maxIdle {
			return fmt.Errorf("it has logged %d KiB within %s", life.logged>>10, idleTime)
		}
		found = append(found, fmt.Sprintf("%s %d bytes", of.GetName(), life.logged))
		return nil
	})
	return strings.Join(found, ", "), err
}

// secretsOf returns the secret string members of a role's configuration.
func secretsOf(of *rolev1.RoleManifest) []string {
	schema, err := readSchema(of.GetConfigurationSchema())
	if err != nil {
		return nil
	}
	properties, _ := schema.resolve(schema.root)["properties"].(map[string]any)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(name string) bool {
		member := schema.resolve(properties[name])
		return member["writeOnly"] != true || !slices.Contains(typesOf(member), "string")
	})
}

// secretText is part of the secret values and occurs nowhere else.
const secretText = "3q2bYxkS9vTzR7"

func checkSecret(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		secrets := secretsOf(of)
		if len(secrets) == 0 {
			return nil
		}
		base, err := s.base(of)
		if err != nil {
			return err
		}
		schema, err := readSchema(of.GetConfigurationSchema())
		if err != nil {
			return err
		}
		given := base
		for _, name := range secrets {
			if next := with(given, name, secretText); schema.fits(next) {
				given = next
			}
		}
		// If the schema does not accept the text, only the refusal can be checked.
		if err := s.keepsSecret(ctx, of, document(given), true); err != nil {
			return err
		}
		for _, name := range secrets {
			for _, wrong := range []any{with(with(base, name, secretText), noSuchField, true), with(base, name, []any{secretText})} {
				if schema.fits(wrong) {
					continue
				}
				if err := s.keepsSecret(ctx, of, document(wrong), false); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// keepsSecret starts a role with a configuration that contains the secret text, and looks for the text in everything that the role says.
func (s *subject) keepsSecret(ctx context.Context, of *rolev1.RoleManifest, configuration string, fits bool) error {
	data, err := s.directory()
	if err != nil {
		return err
	}
	p, request, err := s.prepare(ctx, of, data, configuration)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	answer := p.callStart(ctx, request)
	_, _ = fmt.Fprint(&said, answer)
	switch {
	case answer == nil:
		i := s.follow(p, request)
		if err := i.settle(ctx, of); err != nil {
			return err
		}
		now, _ := i.status.Get()
		_, _ = fmt.Fprint(&said, now)
		if err := i.stopped(ctx); err != nil {
			return err
		}
	case fits:
		return fmt.Errorf("it refuses a configuration that fits its schema: %w", answer)
	}
	if err := s.end(p); err != nil {
		return err
	}
	if text, _ := p.logged(); strings.Contains(text, secretText) {
		return errors.New("the value of a secret member is in its log")
	}
	if strings.Contains(said.String(), secretText) || detailsHave(answer, secretText) {
		return errors.New("the value of a secret member is in its status, or in its refusal")
	}
	return nil
}
