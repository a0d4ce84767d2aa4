package reference_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestProtocols holds that the pages of docs/reference/protocols are those of the .proto files.
func TestProtocols(t *testing.T) {
	made := make(map[string]bool)
	for name, files := range protocols(t) {
		page := "protocols/" + strings.TrimPrefix(string(name), "reeve.") + ".md"
		made[page] = true
		golden(t, page, protocol(name, files))
	}
	if len(made) < 5 {
		t.Errorf("there are %d protocols", len(made))
	}
	only(t, "protocols/*.md", made)
}

// protocols are the files of each package, compiled with their comments.
func protocols(t *testing.T) map[protoreflect.FullName][]linker.File {
	t.Helper()
	const root = workspace + "/proto"
	found, err := filepath.Glob(root + "/reeve/*/v*/*.proto")
	if err != nil || len(found) == 0 {
		t.Fatalf("%v: %d files", err, len(found))
	}
	var names []string
	for _, file := range found {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root, root + "/third_party"}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[protoreflect.FullName][]linker.File)
	for _, file := range compiled {
		packages[file.Package()] = append(packages[file.Package()], file)
	}
	return packages
}

// writer writes the page of one package.
type writer struct {
	strings.Builder
	name protoreflect.FullName
}

func protocol(name protoreflect.FullName, files []linker.File) string {
	w := &writer{name: name}
	fmt.Fprintf(w, "# %s\n\n%s", name, generated)
	for _, file := range files {
		// What a file says of itself is above its first line.
		at := file.SourceLocations().ByPath(protoreflect.SourcePath{12})
		w.text(strings.Join(append(slices.Clone(at.LeadingDetachedComments), at.LeadingComments), "\n\n"))
	}
	messages := make(map[protoreflect.FullName]protoreflect.MessageDescriptor)
	for _, file := range files {
		for service := range each(file.Services()) {
			w.service(service)
		}
		for message := range each(file.Messages()) {
			messages[message.FullName()] = message
		}
	}
	w.WriteString("\n## Messages\n")
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		w.message(messages[name])
	}
	var enums []protoreflect.EnumDescriptor
	var extensions []protoreflect.ExtensionDescriptor
	for _, file := range files {
		enums = slices.AppendSeq(enums, each(file.Enums()))
		extensions = slices.AppendSeq(extensions, each(file.Extensions()))
	}
	if len(enums) > 0 {
		w.WriteString("\n## Enumerations\n")
	}
	for _, enum := range enums {
		w.enum(enum)
	}
	if len(extensions) > 0 {
		w.WriteString("\n## Options\n\n| option of | name | type | |\n|---|---|---|---|\n")
	}
	for _, extension := range extensions {
		fmt.Fprintf(w, "| `%s` | `%s` | %s | %s |\n", extension.ContainingMessage().Name(), extension.Name(), w.kind(extension), line(escaped(remarks(extension))))
	}
	return w.String()
}

// list is one of protoreflect's lists.
type list[T any] interface {
	Len() int
	Get(int) T
}

func each[T any](l list[T]) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for i := range l.Len() {
			if !yield(l.Get(i)) {
				return
			}
		}
	}
}

// remarks are what stands before a declaration, and behind it.
func remarks(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	return strings.TrimSpace(at.LeadingComments + "\n" + at.TrailingComments)
}

// columns is a line that is set in columns.
var columns = regexp.MustCompile(`\S {2,}\S`)

// text writes a comment: a paragraph that is set in columns is a block.
func (w *writer) text(text string) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var lines []string
		for line := range strings.Lines(block) {
			lines = append(lines, strings.TrimSpace(line))
		}
		switch {
		case len(lines) == 0:
		case slices.ContainsFunc(lines, columns.MatchString):
			w.WriteString("\n```text\n" + strings.Join(lines, "\n") + "\n```\n")
		default:
			w.WriteString("\n" + escaped(strings.Join(lines, "\n")) + "\n")
		}
	}
}

func (w *writer) service(service protoreflect.ServiceDescriptor) {
	fmt.Fprintf(w, "\n## %s\n", service.Name())
	w.text(remarks(service))
	for method := range each(service.Methods()) {
		fmt.Fprintf(w, "\n### %s.%s\n\n", service.Name(), method.Name())
		stream := func(is bool) string {
			if is {
				return "stream "
			}
			return ""
		}
		fmt.Fprintf(w, "%s%s → %s%s\n", stream(method.IsStreamingClient()), w.link(method.Input()), stream(method.IsStreamingServer()), w.link(method.Output()))
		w.text(remarks(method))
		if options := options(method); options != "" {
			fmt.Fprintf(w, "\n%s\n", options)
		}
	}
}

// options are those of a method that say who may call it, as its file has them.
func options(method protoreflect.MethodDescriptor) string {
	var all []string
	method.Options().ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() == nil {
			return true
		}
		var parts []string
		value.Message().Range(func(of protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			parts = append(parts, fmt.Sprintf("`%s`: %s", of.Name(), plain(of, value)))
			return true
		})
		slices.Sort(parts)
		all = append(all, fmt.Sprintf("Option `%s`: %s.", field.Name(), strings.Join(parts, ", ")))
		return true
	})
	slices.Sort(all)
	return strings.Join(all, " ")
}

// plain is a value of an option.
func plain(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if field.IsList() {
		var parts []string
		for i := range value.List().Len() {
			parts = append(parts, scalar(field, value.List().Get(i)))
		}
		return strings.Join(parts, ", ")
	}
	return scalar(field, value)
}

func scalar(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if field.Enum() != nil {
		if named := field.Enum().Values().ByNumber(value.Enum()); named != nil {
			return "`" + string(named.Name()) + "`"
		}
	}
	return "`" + value.String() + "`"
}

func (w *writer) message(message protoreflect.MessageDescriptor) {
	if message.IsMapEntry() {
		return
	}
	fmt.Fprintf(w, "\n### %s\n", w.local(message))
	w.text(remarks(message))
	if message.Fields().Len() == 0 {
		w.WriteString("\nIt has no fields.\n")
	} else {
		w.WriteString("\n| field | number | type | |\n|---|---|---|---|\n")
	}
	for field := range each(message.Fields()) {
		text := line(escaped(remarks(field)))
		if of := field.ContainingOneof(); of != nil && !of.IsSynthetic() {
			text = line(fmt.Sprintf("One of `%s`. %s", of.Name(), text))
		}
		fmt.Fprintf(w, "| `%s` | %d | %s | %s |\n", field.Name(), field.Number(), w.kind(field), text)
	}
	for nested := range each(message.Messages()) {
		w.message(nested)
	}
	for enum := range each(message.Enums()) {
		w.enum(enum)
	}
}

func (w *writer) enum(enum protoreflect.EnumDescriptor) {
	fmt.Fprintf(w, "\n### %s\n", w.local(enum))
	w.text(remarks(enum))
	w.WriteString("\n| value | number | |\n|---|---|---|\n")
	for value := range each(enum.Values()) {
		fmt.Fprintf(w, "| `%s` | %d | %s |\n", value.Name(), value.Number(), line(escaped(remarks(value))))
	}
}

// kind is the type of a field.
func (w *writer) kind(field protoreflect.FieldDescriptor) string {
	single := func(field protoreflect.FieldDescriptor) string {
		switch {
		case field.Message() != nil:
			return w.link(field.Message())
		case field.Enum() != nil:
			return w.link(field.Enum())
		default:
			return field.Kind().String()
		}
	}
	switch {
	case field.IsMap():
		return "map of " + single(field.MapKey()) + " to " + single(field.MapValue())
	case field.IsList():
		return "repeated " + single(field)
	case field.HasOptionalKeyword():
		return "optional " + single(field)
	default:
		return single(field)
	}
}

// local is the name of a declaration within its package.
func (w *writer) local(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

// link is a link to where a type is described.
func (w *writer) link(d protoreflect.Descriptor) string {
	of := d.ParentFile().Package()
	anchor := "#" + strings.ToLower(strings.ReplaceAll(w.local(d), ".", ""))
	switch {
	case of == w.name:
		return "[" + w.local(d) + "](" + anchor + ")"
	case strings.HasPrefix(string(of), "reeve."):
		name := strings.TrimPrefix(string(of), "reeve.")
		return "[" + name + "." + w.local(d) + "](" + name + ".md" + anchor + ")"
	default:
		return "`" + string(d.FullName()) + "`"
	}
}
