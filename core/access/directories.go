package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/proto/limits"
)

const socketName = "consensus.sock"

// directories is the directories of the instances' consensus sockets.
type directories struct {
	root string
	made map[string]owners // by the instance's name
}

// owners is whom a directory belongs to.
type owners struct {
	uid, gid uint32
}

func newDirectories(root string) directories {
	return directories{root: root, made: make(map[string]owners)}
}

func (d directories) path(name string) string   { return filepath.Join(d.root, name) }
func (d directories) socket(name string) string { return filepath.Join(d.root, name, socketName) }

func (d directories) has(name string) bool {
	_, ok := d.made[name]
	return ok
}

// provider is the user that may do anything in the directory of an instance.
func (d directories) provider(name string) uint32 { return d.made[name].uid }

// prepare makes the directory in which the others are, whenever it is not there: somebody may have removed it.
func (d directories) prepare() error {
	if err := os.MkdirAll(d.root, 0o711); err != nil {
		return fmt.Errorf("directory of the consensus sockets: %w", err)
	}
	// Roles pass through it to their own directory, whatever the umask says.
	if err := os.Chmod(d.root, 0o711); err != nil {
		return fmt.Errorf("directory of the consensus sockets: %w", err)
	}
	return nil
}

// make makes the directory of an instance, or gives it to another provider: the provider may do anything in it, the instance may only search
// it. It does nothing if that is so already.
func (d directories) make(remit *plugin.Remit, provider uint32) error {
	name := remit.Name
	if name != filepath.Base(name) || name == "." || name == ".." || name == string(filepath.Separator) {
		return fmt.Errorf("%q cannot name a directory: an instance is named <role>.<counter>", name)
	}
	if socket := d.socket(name); len(socket) > limits.SocketPath {
		return fmt.Errorf("the path %s has %d bytes, and that of a socket at most %d: set a shorter run directory in the node's parameters",
			socket, len(socket), limits.SocketPath)
	}
	want := owners{uid: provider, gid: remit.GID}
	path := d.path(name)
	if have, ok := d.made[name]; ok && have == want {
		// Somebody may have removed it, and the launcher of roles may have made the root anew since (core/plugin).
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The directory may be there, from before or with another owner.
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if present, err := os.Lstat(path); err != nil {
		return err
	} else if !present.IsDir() {
		return fmt.Errorf("%s is not a directory but a %s: remove it", path, present.Mode().Type())
	}
	mode := os.FileMode(0o700)
	// Where the provider is another user than the core, it must be given the directory whoever the instance is: a privileged role is the core's user.
	if !remit.SharedUID || provider != uint32(os.Geteuid()) {
		// Set-group-ID makes the socket the group's whoever binds it. It goes last: a change of owner clears it.
		mode = 0o710 | os.ModeSetgid
		if err := os.Lchown(path, int(want.uid), int(want.gid)); err != nil {
			return err
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	d.made[name] = want
	return nil
}

// keep removes every directory but those of these names.
func (d directories) keep(names map[string]struct{}) error {
	present, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}
	var problems []error
	for _, entry := range present {
		if _, wanted := names[entry.Name()]; wanted {
			continue
		}
		if err := rmtree.Remove(context.Background(), d.path(entry.Name())); err != nil {
			problems = append(problems, err)
			continue
		}
		delete(d.made, entry.Name())
	}
	return errors.Join(problems...)
}
