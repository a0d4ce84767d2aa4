package output

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// State returns the word by which people know an enum value of the protocol: INSTANCE_STATE_READY is "Ready". An unspecified value is the
// empty string.
func State(value protoreflect.Enum) string {
	return stateOf(enumWords(value.Descriptor(), value.Number()))
}

// States are the words for all values of an enum but the unspecified one.
func States(enum protoreflect.EnumDescriptor) []string {
	var states []string
	for i := range enum.Values().Len() {
		if state := stateOf(enumWords(enum, enum.Values().Get(i).Number())); state != "" {
			states = append(states, state)
		}
	}
	return states
}

func stateOf(words []string) string {
	var state strings.Builder
	for _, part := range words {
		state.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return state.String()
}

// Kind returns an enum value of the protocol as a lower-case word with dashes: ISOLATION_SHARED_UID is "shared-uid".
func Kind(value protoreflect.Enum) string {
	return kindOf(enumWords(value.Descriptor(), value.Number()))
}

func kindOf(words []string) string { return strings.ToLower(strings.Join(words, "-")) }

// meant are the values that an unspecified one stands for.
var meant = map[protoreflect.FullName]protoreflect.Enum{
	"reeve.role.v1.SplitBehaviour":       rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_TOLD,
	"reeve.cluster.v1.IsolationPolicy":   clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT,
	"reeve.cluster.v1.ConformancePolicy": clusterv1.ConformancePolicy_CONFORMANCE_POLICY_OPTIONAL,
}

// word returns State for an enum whose name ends in State, and Kind for every other one.
func word(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	if instead := meant[enum.FullName()]; number == 0 && instead != nil {
		number = instead.Number()
	}
	if strings.HasSuffix(string(enum.Name()), "State") {
		return stateOf(enumWords(enum, number))
	}
	return kindOf(enumWords(enum, number))
}

// enumWords are the words of a value's name without those of its type, which the style of the protocol puts first.
func enumWords(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) []string {
	descriptor := enum.Values().ByNumber(number)
	if descriptor == nil || number == 0 {
		return nil
	}
	zero := string(enum.Values().ByNumber(0).Name())
	return strings.Split(strings.TrimPrefix(string(descriptor.Name()), strings.TrimSuffix(zero, "UNSPECIFIED")), "_")
}

// moment is a time of the protocol as the documents have it; nil if there is none.
func moment(stamp *timestamppb.Timestamp) *time.Time {
	if !stamp.IsValid() || (stamp.GetSeconds() == 0 && stamp.GetNanos() == 0) {
		return nil
	}
	t := stamp.AsTime()
	return &t
}

func sortBy[T any](of []T, key func(T) string) {
	slices.SortFunc(of, func(a, b T) int { return strings.Compare(key(a), key(b)) })
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func orNone(of []string) string {
	if len(of) == 0 {
		return "none"
	}
	return strings.Join(of, ", ")
}

func number[N int64 | uint32 | uint64](n N) string { return fmt.Sprint(n) }

// formatSize is a size for people.
func formatSize(size int64) string {
	const unit = 1024
	if size < unit {
		return fmt.Sprintf("%d B", size)
	}
	value, units := float64(size)/unit, []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}

// splitLines are the lines of a text without their ends.
func splitLines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n")
}

// fixed writes the cells of a line in columns of fixed widths; the last one has none.
func fixed(w io.Writer, widths []int, cells []string) {
	for i, cell := range cells {
		cell = Clean(cell)
		if cell == "" {
			cell = "-"
		}
		if i < len(widths) {
			cell = fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		_, _ = io.WriteString(w, cell)
	}
	_, _ = io.WriteString(w, "\n")
}

// ago is how long ago something was, with the word; "-" if it is not known.
func ago(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return age(at, now) + " ago"
}

// age is how long ago something was, for people.
func age(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return short(now.Sub(*at))
}

// short is a duration for people.
func short(d time.Duration) string {
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

// WithReason joins a state and its reason. The reason may be empty.
func WithReason(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + Clean(reason)
}
