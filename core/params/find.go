package params

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// FirmwareFile is where the kernel module qemu_fw_cfg shows the content of `qemu -fw_cfg name=opt/dev.reeve/parameters,file=…`.
	FirmwareFile = "/sys/firmware/qemu_fw_cfg/by_name/opt/dev.reeve/parameters/raw"
	// SystemDirectory is the last place to look, unless the command line names another directory.
	SystemDirectory = "/var/lib/reeve/system"
)

// systemNames are the file names in the system directory. The content decides about the format, not the name.
var systemNames = [...]string{"parameters.yaml", "parameters.json", "parameters.pb"}

// Source is a place where parameters may be.
type Source interface {
	// String names the place, for people.
	String() string
	// Exists reports whether there is a document. An error means that this is unknown, which is not a "no".
	Exists() (bool, error)
	// Read returns the document; fs.ErrNotExist if there is none.
	Read() ([]byte, error)
}

// File returns a path as a source.
func File(path string) Source { return file(path) }

type file string

func (f file) String() string { return string(f) }

// Exists is true for a dangling link (to a disk that is not mounted, for instance): whoever made it meant it to be read.
func (f file) Exists() (bool, error) {
	switch _, err := os.Lstat(string(f)); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

func (f file) Read() ([]byte, error) {
	opened, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // it was only read
	// One byte more than allowed, so that Parse notices.
	return io.ReadAll(io.LimitReader(opened, maxSize+1))
}

// named is a source on the command line: it must exist.
type named struct{ Source }

func (n named) Exists() (bool, error) { return true, nil }

// Places are the places to look for parameters.
type Places struct {
	// CommandLine is the file on the command line; empty if none.
	CommandLine string
	// Firmware is the file of qemu's firmware configuration.
	Firmware string
	// System is the system directory.
	System string
}

// Sources returns the sources in order.
func (p Places) Sources() []Source {
	var sources []Source
	if p.CommandLine != "" {
		sources = append(sources, named{File(p.CommandLine)})
	}
	sources = append(sources, File(p.Firmware))
	for _, name := range systemNames {
		sources = append(sources, File(filepath.Join(p.System, name)))
	}
	return sources
}

// Found are parameters with their source.
type Found struct {
	Parameters *nodev1.Parameters
	// Source is where they are from.
	Source Source
	// Others are later sources that exist too and were not read.
	Others []Source
}

// NoneError says that no source has parameters.
type NoneError struct {
	// Sources are the places that were tried.
	Sources []Source
}

func (e *NoneError) Error() string {
	var looked []string
	for _, source := range e.Sources {
		looked = append(looked, "  "+source.String())
	}
	return "params: there are no parameters for this node. These do not exist:\n" + strings.Join(looked, "\n") +
		"\nSet this machine up with `reeve init`, name its parameters with `reeved --parameters FILE`, or try a cluster with `reeve dev up`."
}

// Find reads the first source that exists. If that one is unreadable or invalid, it fails with an *Error: falling back to a later source would make
// another node of this machine. *NoneError if none exists.
func Find(sources ...Source) (*Found, error) {
	for i, source := range sources {
		exists, err := source.Exists()
		if err != nil {
			return nil, &Error{Source: source.String(), Err: fmt.Errorf("cannot find out whether there are any: %w", err)}
		}
		if !exists {
			continue
		}
		parameters, err := load(source)
		if err != nil {
			return nil, err
		}
		found := &Found{Parameters: parameters, Source: source}
		for _, other := range sources[i+1:] {
			// One that cannot be looked at counts too: somebody may expect it to be used.
			if exists, err := other.Exists(); exists || err != nil {
				found.Others = append(found.Others, other)
			}
		}
		return found, nil
	}
	return nil, &NoneError{Sources: sources}
}
