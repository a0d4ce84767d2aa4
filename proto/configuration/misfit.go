package configuration

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// misfit says in what a part of a configuration does not fit its schema. It never quotes a value of the configuration, which may be a secret: the
// message ends up on terminals and in logs. What it quotes is the schema's, and the names of properties.
func misfit(of jsonschema.ErrorKind) string {
	printer := message.NewPrinter(language.English)
	switch of := of.(type) {
	case *kind.Pattern:
		return printer.Sprintf("it does not match the pattern %s", quote(of.Want))
	case *kind.Format:
		return printer.Sprintf("it is not a valid %s", of.Want)
	case *kind.Minimum:
		return "it is less than the minimum, which is " + number(of.Want)
	case *kind.Maximum:
		return "it is more than the maximum, which is " + number(of.Want)
	case *kind.ExclusiveMinimum:
		return "it must be more than " + number(of.Want)
	case *kind.ExclusiveMaximum:
		return "it must be less than " + number(of.Want)
	case *kind.MultipleOf:
		return "it is not a multiple of " + number(of.Want)
	case *kind.ContentEncoding:
		return printer.Sprintf("it is not %s encoded", of.Want)
	case *kind.ContentMediaType:
		return printer.Sprintf("it is not of the media type %s", of.Want)
	case *kind.Type, *kind.Enum, *kind.Const, *kind.Required, *kind.AdditionalProperties, *kind.AdditionalItems, *kind.PropertyNames,
		*kind.Dependency, *kind.DependentRequired, *kind.MinProperties, *kind.MaxProperties, *kind.MinItems, *kind.MaxItems, *kind.UniqueItems,
		*kind.Contains, *kind.MinContains, *kind.MaxContains, *kind.MinLength, *kind.MaxLength, *kind.Not, *kind.OneOf, *kind.AnyOf, *kind.AllOf,
		*kind.FalseSchema:
		// These speak of types, counts, and what the schema says.
		return of.LocalizedString(printer)
	}
	// Whoever writes a new kind may quote what it wants.
	return "it does not fit the schema (" + strings.Join(of.KeywordPath(), "/") + ")"
}

func number(of *big.Rat) string {
	number, _ := of.Float64()
	return strconv.FormatFloat(number, 'g', -1, 64)
}
