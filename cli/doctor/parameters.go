package doctor

import (
	"cmp"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
)

// WithParameters adds to findings what reeved said of the parameters in a file. err says that it refuses them, or that it could not be asked.
func WithParameters(document output.Doctor, file, said string, err error) output.Doctor {
	check := good("parameters", "reeved takes "+file)
	check.Essential = true
	if err != nil {
		said = strings.TrimPrefix(strings.TrimSpace(said), "reeved: ")
		check.Level, check.Found = missing, strings.ReplaceAll(cmp.Or(said, err.Error()), "\n", "; ")
		check.Consequence, check.Advice = "reeved does not start with "+file+", or its roles do not work", "Do what each of these says, and run `reeve doctor --parameters "+file+"` again."
		document.Runnable = false
	}
	document.Checks = append(document.Checks, check)
	return document
}
