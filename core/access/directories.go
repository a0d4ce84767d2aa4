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

// directories manages the directories of the instances' consensus sockets.
type directories struct {
	root string
	made map[string]owners // by the instance's name
}

// owners is the owner and group of a directory.
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

// provider returns the owner of an instance's directory, the user who may do anything in it.
func (d directories) provider(name string) uint32 { return d.made[name].uid }

// prepare makes the root directory if it is missing: somebody may have removed it.
func (d directories) prepare() error {
	if err := os.MkdirAll(d.root, 0o711); err != nil {
		return fmt.Errorf("directory of the consensus sockets: %w", err)
	}
	// Roles pass through it, whatever the umask is.
	if err := os.Chmod(d.root, 0o711); err != nil {
		return fmt.Errorf("directory of the consensus sockets: %w", err)
	}
	return nil
}

// make makes an instance's directory, or gives it to another provider. The provider may do anything in it; the instance may only search it. It does
// nothing if that is already so.
func (d directories) make(remit *plugin.Remit, provider uint32) error {
	name := remit.Name
	if name != filepath.Base(name) || name == "." || name == ".." || name == string(filepath.Separator) {
		return fmt.Errorf("%q is not an instance name like <role>.<counter>", name)
	}
	if socket := d.socket(name); len(socket) > limits.SocketPath {
		return fmt.Errorf("the socket path %s has %d bytes, more than the kernel's limit of %d: set a shorter run directory in the node's parameters",
			socket, len(socket), limits.SocketPath)
	}
	want := owners{uid: provider, gid: remit.GID}
	path := d.path(name)
	if have, ok := d.made[name]; ok && have == want {
		// Somebody may have removed it, and core/plugin may have made the root again since.
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// It may exist from before or with another owner.
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if present, err := os.Lstat(path); err != nil {
		return err
	} else if !present.IsDir() {
		return fmt.Errorf("%s is not a directory but a %s: remove it", path, present.Mode().Type())
	}
	mode := os.FileMode(0o700)
	// If the provider is another user than the core, it must own the directory, even where the instance is privileged and runs as the core's user.
	if !remit.SharedUID || provider != uint32(os.Geteuid()) {
		// Set-group-ID gives the socket the directory's group, whoever binds it. Chmod comes last because a change of owner clears the bit.
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

// keep removes every directory but the named ones.
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
