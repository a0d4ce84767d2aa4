package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
	"github.com/reeveproject/reeve/cli/setup"
)

// Limit is how much of one entry is kept, in bytes: its end, which is the newest of a log.
const Limit = 4 << 20

// Root is the directory in the archive.
const Root = "reeve-bundle"

// Entry is one file of a bundle.
type Entry struct {
	// Name is its path in the bundle, with slashes. A name that ends with ".json" is a JSON document, others are lines of text.
	Name string
	// Collect returns what is in it. An error is noted in the bundle as something that is missing.
	Collect func(ctx context.Context) ([]byte, error)
}

// Bundle is what is collected. It is for one goroutine.
type Bundle struct {
	created  time.Time
	redactor *redact.Redactor
	files    []file
	missing  []output.Missing
}

type file struct {
	name      string
	content   []byte
	truncated bool
}

// New begins a bundle. What the redactor knows is taken out of everything.
func New(created time.Time, redactor *redact.Redactor) *Bundle {
	return &Bundle{created: created, redactor: redactor}
}

// Add collects an entry. It returns the error of the entry, which is noted.
func (b *Bundle) Add(ctx context.Context, entry Entry) error {
	content, err := entry.Collect(ctx)
	if err != nil {
		b.Missing(entry.Name, err)
		return err
	}
	added := file{name: entry.Name}
	if strings.HasSuffix(entry.Name, ".json") {
		// The end of a document is none.
		added.content = b.document(content)
	} else {
		if len(content) > Limit {
			content, added.truncated = ending(content), true
		}
		added.content = []byte(b.redactor.Lines(string(content)))
	}
	b.files = append(b.files, added)
	return nil
}

// ending is the end of a text that is too long, from the beginning of a line on.
func ending(content []byte) []byte {
	content = content[len(content)-Limit:]
	if i := bytes.IndexByte(content, '\n'); i >= 0 {
		content = content[i+1:]
	}
	return content
}

// document is a JSON document without its secrets, with the indentation that it had.
func (b *Bundle) document(content []byte) []byte {
	redacted := b.redactor.JSON(strings.TrimSuffix(string(content), "\n"))
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(redacted), "", "  "); err != nil {
		// It was none, and is kept as the text that it is.
		return []byte(redacted + "\n")
	}
	indented.WriteByte('\n')
	return indented.Bytes()
}

// Missing notes something that is missing.
func (b *Bundle) Missing(what string, err error) {
	reason := err.Error()
	if problem := (*fault.Error)(nil); errors.As(err, &problem) {
		reason = problem.What
	}
	b.missing = append(b.missing, output.Missing{What: what, Reason: b.redactor.Text(reason)})
}

// Free says whether a bundle can be written to a file: nil, or why not. Write finds out as well, after everything was collected.
func Free(name string) error {
	if _, err := os.Lstat(name); err == nil {
		return taken(name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return writeFault(err, name)
	}
	directory := filepath.Dir(name)
	if err := unix.Access(directory, unix.W_OK|unix.X_OK); err != nil {
		return writeFault(&fs.PathError{Op: "write to", Path: directory, Err: err}, name)
	}
	return nil
}

func taken(name string) error {
	return fault.New(fault.Refused, name+" is there already", "Move it away, or name another file with --file.")
}

// Write writes the bundle to a file that is not there yet, and returns what is in it.
func (b *Bundle) Write(name string) (output.Bundle, error) {
	slices.SortFunc(b.files, func(x, y file) int { return strings.Compare(x.name, y.name) })
	contents := b.contents()
	var index bytes.Buffer
	if err := output.Print(&index, output.JSON, contents, b.created); err != nil {
		return output.Bundle{}, err
	}
	var text bytes.Buffer
	if err := archive(&text, b.created, append([]file{{name: "bundle.json", content: index.Bytes()}}, b.files...)); err != nil {
		return output.Bundle{}, writeFault(err, name)
	}
	made, err := setup.CreateOnly(name, text.Bytes(), 0o600)
	if err != nil {
		return output.Bundle{}, writeFault(err, name)
	}
	if !made {
		return output.Bundle{}, taken(name)
	}
	contents.File = name
	return contents, nil
}

func (b *Bundle) contents() output.Bundle {
	created := b.created.UTC()
	contents := output.Bundle{Created: &created, Contents: []output.BundleFile{}, Missing: []output.Missing{}, Redacted: b.redactor.Count()}
	contents.Missing = append(contents.Missing, b.missing...)
	for _, file := range b.files {
		contents.Contents = append(contents.Contents, output.BundleFile{Name: file.name, Size: int64(len(file.content)), Truncated: file.truncated})
	}
	return contents
}

// archive writes files, the first one as the first, as a gzipped tar.
func archive(to io.Writer, at time.Time, files []file) error {
	compressed := gzip.NewWriter(to)
	entries := tar.NewWriter(compressed)
	for _, file := range files {
		// Names of roles are parts of names, and nodes say them: none leads out of the directory.
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(Root, path.Join("/", file.name)), Size: int64(len(file.content)), Mode: 0o600,
			ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX,
		}
		if err := entries.WriteHeader(header); err != nil {
			return err
		}
		if _, err := entries.Write(file.content); err != nil {
			return err
		}
	}
	return errors.Join(entries.Close(), compressed.Close())
}

func writeFault(err error, name string) error {
	return fault.File(err, fmt.Sprintf("cannot write the bundle %s", name), "Name another file with --file.")
}
