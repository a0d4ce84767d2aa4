package output

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// State returns the word by which people know an enum value of the protocol: INSTANCE_STATE_READY is "Ready". An unspecified value is the
// empty string.
func State(value protoreflect.Enum) string {
	var words strings.Builder
	for _, part := range enumWords(value) {
		words.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return words.String()
}

// Kind returns an enum value of the protocol as a lower-case word with dashes: ISOLATION_SHARED_UID is "shared-uid".
func Kind(value protoreflect.Enum) string {
	return strings.ToLower(strings.Join(enumWords(value), "-"))
}

// enumWords are the words of a value's name without those of its type, which the style of the protocol puts first.
func enumWords(value protoreflect.Enum) []string {
	descriptor := value.Descriptor().Values().ByNumber(value.Number())
	if descriptor == nil || value.Number() == 0 {
		return nil
	}
	name := string(descriptor.Name())
	zero := string(value.Descriptor().Values().ByNumber(0).Name())
	name = strings.TrimPrefix(name, strings.TrimSuffix(zero, "UNSPECIFIED"))
	return strings.Split(name, "_")
}

// moment is a time of the protocol as the documents have it; nil if there is none.
func moment(stamp *timestamppb.Timestamp) *time.Time {
	if !stamp.IsValid() || (stamp.GetSeconds() == 0 && stamp.GetNanos() == 0) {
		return nil
	}
	t := stamp.AsTime()
	return &t
}

// age is how long ago something was, for people.
func age(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	d := now.Sub(*at)
	switch {
	case d < 0:
		return "0s"
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	case d >= 10*time.Minute:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	default:
		return d.Truncate(time.Second).String()
	}
}
