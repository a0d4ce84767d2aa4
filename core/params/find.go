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
	// FirmwareFile is where the kernel shows what `qemu -fw_cfg name=opt/dev.reeve/parameters,file=…` gives to the machine. The module qemu_fw_cfg makes it.
	FirmwareFile = "/sys/firmware/qemu_fw_cfg/by_name/opt/dev.reeve/parameters/raw"
	// SystemDirectory is where parameters are looked for last, unless the command line names another directory.
	SystemDirectory = "/var/lib/reeve/system"
)

// The names that parameters have in the system directory. The content says what a file is, not its name.
var systemNames = [...]string{"parameters.yaml", "parameters.json", "parameters.pb"}

// Source is a place from which parameters may come.
type Source interface {
	// String says where it is, for people.
	String() string
	// Exists says whether there is anything. An error is not a "no": it says that this cannot be found out.
	Exists() (bool, error)
	// Read returns the document; fs.ErrNotExist if there is none.
	Read() ([]byte, error)
}

// File is the file of a path as a source.
func File(path string) Source { return file(path) }

type file string

func (f file) String() string { return string(f) }

// Exists takes a name that leads nowhere (a link to a disk that is not mounted, say) for one that is there: whoever made it meant it to be read.
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
	// One more than is allowed, so that Parse sees that it is too much.
	return io.ReadAll(io.LimitReader(opened, maxSize+1))
}

// named is a source that the command line names: it has to be there.
type named struct{ Source }

func (n named) Exists() (bool, error) { return true, nil }

// Places are where parameters are looked for.
type Places struct {
	// CommandLine is the file that the command line names; empty: none.
	CommandLine string
	// Firmware is the file of qemu's firmware configuration.
	Firmware string
	// System is the system directory.
	System string
}

// Sources returns the sources in their order.
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

// Found are parameters and where they are from.
type Found struct {
	Parameters *nodev1.Parameters
	// Source is where they are from.
	Source Source
	// Others are the sources after it that exist too, and were not read.
	Others []Source
}

// NoneError says that no source has parameters.
type NoneError struct {
	// Sources is where was looked.
	Sources []Source
}

func (e *NoneError) Error() string {
	var looked []string
	for _, source := range e.Sources {
		looked = append(looked, "  "+source.String())
	}
	return "params: there are no parameters for this node. There is nothing at\n" + strings.Join(looked, "\n") +
		"\nSet this machine up with `reeve init`, say where its parameters are with `reeved --parameters FILE`, or try a cluster with `reeve dev up`."
}

// Find reads the first of the sources that exists. What exists and cannot be read or used is an *Error that names it: it is never passed over in favour of
// a later source, which would make another node of this machine. *NoneError if none exists.
func Find(sources ...Source) (*Found, error) {
	for i, source := range sources {
		exists, err := source.Exists()
		if err != nil {
			return nil, &Error{Source: source.String(), Err: fmt.Errorf("whether there are any cannot be found out: %w", err)}
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
			// What cannot be looked at is named too: it may be what somebody expects to count.
			if exists, err := other.Exists(); exists || err != nil {
				found.Others = append(found.Others, other)
			}
		}
		return found, nil
	}
	return nil, &NoneError{Sources: sources}
}
