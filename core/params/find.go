package params

import (
	"errors"
	"fmt"
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

// Places are the files in which parameters are looked for.
type Places struct {
	// CommandLine is the file on the command line, which must exist; empty if none.
	CommandLine string
	// Firmware is the file of qemu's firmware configuration.
	Firmware string
	// System is the system directory.
	System string
}

// Files returns the files in their order.
func (p Places) Files() []string {
	files := []string{p.Firmware}
	if p.CommandLine != "" {
		files = []string{p.CommandLine, p.Firmware}
	}
	for _, name := range systemNames {
		files = append(files, filepath.Join(p.System, name))
	}
	return files
}

// Found are parameters with the file that they are from.
type Found struct {
	Parameters *nodev1.Parameters
	File       string
	// Others are later files that exist too and were not read.
	Others []string
}

// NoneError says that there are no parameters.
type NoneError struct {
	// Files are the files that were looked for.
	Files []string
}

func (e *NoneError) Error() string {
	return "params: there are no parameters for this node. These do not exist:\n  " + strings.Join(e.Files, "\n  ") +
		"\nIf this machine is a node already, mount the disk that holds its parameters. Otherwise set it up with `reeve init`, name its parameters with `reeved --parameters FILE`, or try a cluster with `reeve dev up`."
}

// Find reads the first file that exists. If that one is unreadable or invalid, it fails with an *Error: falling back to a later file would make
// another node of this machine. *NoneError if none exists.
func (p Places) Find() (*Found, error) {
	files := p.Files()
	for i, file := range files {
		there, err := exists(file)
		switch {
		case file == p.CommandLine:
		case err != nil:
			return nil, &Error{File: file, Err: fmt.Errorf("cannot look for parameters there: %w", err)}
		case !there:
			continue
		}
		parameters, err := load(file)
		if err != nil {
			return nil, err
		}
		found := &Found{Parameters: parameters, File: file}
		for _, other := range files[i+1:] {
			// One that cannot be looked at counts too: somebody may expect it to be used.
			if there, err := exists(other); there || err != nil {
				found.Others = append(found.Others, other)
			}
		}
		return found, nil
	}
	return nil, &NoneError{Files: files}
}

// exists reports whether there is a file. A dangling link (to a disk that is not mounted, for instance) is one: whoever made it meant it to be read. An error means
// that it is unknown, which is not a "no".
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
