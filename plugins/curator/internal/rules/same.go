package rules

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// SameConfiguration reports whether two configurations say the same: the order of keys, white space, and how a number or a letter is written do not matter. One that is empty says
// something else than an empty object.
func SameConfiguration(a, b string) bool {
	if a == b {
		return true
	}
	one, err := meaning(a)
	other, otherErr := meaning(b)
	return errors.Join(err, otherErr) == nil && reflect.DeepEqual(one, other)
}

// meaning is the value of a JSON document.
func meaning(document string) (value any, err error) {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the document")
	}
	return plain(value), nil
}

// plain returns a value of which each number is written in one way.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		return plainNumber(string(value))
	case []any:
		for i := range value {
			value[i] = plain(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = plain(value[key])
		}
	}
	return value
}

// plainNumber writes a number as its digits and a power of ten. It does not compute it: 1e999999999 has a billion digits.
func plainNumber(text string) json.Number {
	mantissa, exponent, has := strings.Cut(strings.ToLower(text), "e")
	power := int64(0)
	if has {
		given, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return json.Number(text)
		}
		power = given
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	power += int64(len(digits)-len(short)) - int64(len(fraction))
	if negative {
		short = "-" + short
	}
	return json.Number(short + "e" + strconv.FormatInt(power, 10))
}
