package doctor

import (
	"cmp"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
)

// warns begins each line of `reeved check` that says what the node starts without.
const warns = "warning: the node starts without this: "

// Said is what `reeved check` wrote of parameters: on stderr what it refuses, on stdout what it starts without.
type Said struct{ Refused, Lacked string }

// WithParameters adds to findings what reeved said of the parameters in a file. err says that it refuses them, or that it could not be asked.
func WithParameters(document output.Doctor, file string, said Said, err error) output.Doctor {
	check := good("parameters", "reeved takes "+file)
	check.Essential = true
	lacked := said.lacked()
	advice := "Do what each of these says, and run `reeve doctor --parameters " + file + "` again."
	switch {
	case err != nil:
		refused := strings.TrimPrefix(strings.TrimSpace(said.Refused), "reeved: ")
		refused = strings.ReplaceAll(cmp.Or(refused, err.Error()), "\n", "; ")
		check.Level, check.Found = missing, refused
		if len(lacked) > 0 {
			check.Found += "; and it would go on without this: " + strings.Join(lacked, "; ")
		}
		check.Consequence, check.Advice = "reeved does not start with "+file+", or its roles do not work", advice
		document.Runnable = false
	case len(lacked) > 0:
		check.Level, check.Found = warning, strings.Join(lacked, "; ")
		check.Consequence, check.Advice = "reeved starts with "+file+", and goes on without what is found", advice
	}
	document.Checks = append(document.Checks, check)
	return document
}

// lacked is what reeved starts without.
func (s Said) lacked() (found []string) {
	for line := range strings.Lines(s.Lacked) {
		if text, ok := strings.CutPrefix(line, warns); ok {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}
