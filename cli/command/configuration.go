package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
)

// maxConfiguration is more than the cluster API takes.
const maxConfiguration = 1 << 20

// readConfiguration returns the configuration in a file as a JSON document; empty if no file is named, or the file is empty.
func (c *commands) readConfiguration(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	from := c.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return "", fault.Wrap(fault.NotFound, err, "cannot read the configuration", "Give a file, or - for the standard input, with --config.")
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	text, err := io.ReadAll(io.LimitReader(from, maxConfiguration+1))
	if err != nil {
		return "", fault.Wrap(fault.Failed, err, fmt.Sprintf("cannot read the configuration in %s", file), "Give a file, or - for the standard input, with --config.")
	}
	if len(text) > maxConfiguration {
		return "", fault.New(fault.Usage, fmt.Sprintf("the configuration in %s is longer than 1 MiB", file), "Give the right file with --config.")
	}
	if len(bytes.TrimSpace(text)) == 0 {
		if file == "-" { // what should have written it has failed
			return "", fault.New(fault.Usage, "the standard input has no configuration", "Give an empty file with --config to take the configuration away.")
		}
		return "", nil
	}
	if json.Valid(text) {
		return string(text), nil
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, fmt.Sprintf("the configuration in %s is neither JSON nor YAML", file), "Correct it, and give it with --config again.")
	}
	return string(document), nil
}
