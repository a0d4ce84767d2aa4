package luks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// Config is where the volume is.
type Config struct {
	Log hclog.Logger
	// Device is the block device.
	Device string
	// Data is the node's data directory, where it is mounted.
	Data string
	// NodeID names the container and its mapping, so that it is known again.
	NodeID string
	// Step, unless it is nil, is told of each step by which a call changes the system, before it is taken.
	Step func(step string)
}

// KeySize is the size of the key, in bytes.
const KeySize = 64

// MinSize is the size of a device at least, in bytes: the header takes 16 MiB of it.
const MinSize int64 = 256 << 20

// New returns the volume. It touches nothing.
func New(config Config) volume.Kind {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Step == nil {
		config.Step = func(string) {}
	}
	return &container{Config: config, uuid: UUID(config.NodeID), name: MappingName(config.NodeID)}
}

// UUID is the UUID of a node's container (version 8 of RFC 9562: a hash of the node's ID).
func UUID(nodeID string) string {
	id := sha256.Sum256([]byte("reeve luks v1\x00" + nodeID))
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// MappingName is the name of the device that an open container has below /dev/mapper.
func MappingName(nodeID string) string { return "reeve-" + UUID(nodeID)[:8] }

type container struct {
	Config
	uuid, name string
}

func (c *container) Describe() volume.Description {
	return volume.Description{Kind: storage.LUKS, Encrypted: true, Location: c.Device, KeySize: KeySize}
}

func (c *container) State(context.Context) (volume.State, error) {
	content, err := c.inspect()
	if err != nil {
		return volume.Absent, err
	}
	switch {
	case content.mine && content.complete:
	case content.resumable():
		return volume.Absent, nil
	default:
		return volume.Absent, &volume.DamagedError{Location: c.Device, Problem: "it is not the volume of this node: there is " + content.found + ": name the right device (volume.luks.device), or restore it"}
	}
	mapping, err := c.mapping()
	if err != nil || mapping == nil {
		return volume.Closed, err
	}
	mount, err := volume.MountAt(c.Data)
	if err != nil || mount == nil || mount.Device != mapping.device {
		return volume.Closed, err
	}
	return volume.Open, nil
}

func (c *container) Open(ctx context.Context, key *keys.Secret) error {
	if err := needRoot("open " + c.Device); err != nil {
		return err
	}
	state, err := c.State(ctx)
	if err != nil || state == volume.Open {
		return err
	}
	if state == volume.Absent {
		return &volume.DamagedError{Location: c.Device, Problem: "it holds no volume: name the right device (volume.luks.device), or restore it"}
	}
	found, err := volume.Content(c.Data)
	if err != nil {
		return err
	}
	if found != "" {
		return &volume.DamagedError{Location: c.Data, Problem: fmt.Sprintf("the volume would be mounted over it, and it is not empty (there is %s): move that away", found)}
	}
	if err := volume.MakeDirectory(c.Data, 0o700); err != nil {
		return err
	}
	mapped, err := c.open(ctx, key)
	if err != nil {
		return err
	}
	c.Step("mount")
	if err := volume.MountFS(c.path(), c.Data); err != nil {
		if mapped {
			err = errors.Join(err, c.unmap(context.WithoutCancel(ctx)))
		}
		return err
	}
	return nil
}

// open maps the container, unless it is mapped, and reports whether it had to. Either way the key must be the right one.
func (c *container) open(ctx context.Context, key *keys.Secret) (bool, error) {
	if err := needMapper(ctx); err != nil {
		return false, err
	}
	mapping, err := c.mapping()
	if err != nil {
		return false, err
	}
	if mapping != nil {
		return false, c.test(ctx, key)
	}
	c.Step("map")
	return true, c.cryptsetup(ctx, key, nil, "open", "--type", "luks2", "--key-file", "-", "--keyfile-size", keySize, c.Device, c.name)
}

func (c *container) path() string { return "/dev/mapper/" + c.name }

func (c *container) Close(ctx context.Context) error {
	if err := needRoot("close " + c.Device); err != nil {
		return err
	}
	mapping, err := c.mapping()
	if err != nil || mapping == nil {
		return err
	}
	mount, err := volume.MountAt(c.Data)
	if err != nil {
		return err
	}
	place := volume.Place{Device: mapping.device}
	mounted := mount != nil && mount.Device == mapping.device
	if mounted {
		c.Step("unmount")
		if err := volume.Release(ctx, c.Data, c.Device, place); err != nil {
			return err
		}
	}
	if err := c.shut(ctx, place); err != nil {
		var busy *volume.BusyError
		if errors.As(err, &busy) && mounted {
			err = errors.Join(err, volume.MountFS(c.path(), c.Data))
		}
		return err
	}
	return c.proveClosed(mapping.device)
}

// shut removes the mapping, with which the kernel forgets the key. *volume.BusyError if something has it open.
func (c *container) shut(ctx context.Context, place volume.Place) error {
	users, err := volume.Users(place)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return &volume.BusyError{Location: c.Device, Users: users}
	}
	err = c.unmap(ctx)
	var exit *volume.ExitError
	if errors.As(err, &exit) && exit.Code == exitBusy {
		if users, err = volume.Users(place); err != nil {
			return err
		}
		return &volume.BusyError{Location: c.Device, Users: users}
	}
	return err
}

func (c *container) unmap(ctx context.Context) error {
	c.Step("unmap")
	return c.cryptsetup(ctx, nil, nil, "close", c.name)
}

// proveClosed fails unless the mapping is gone, nothing of it is mounted, and the container is still there.
func (c *container) proveClosed(device uint64) error {
	mapping, err := c.mapping()
	if err != nil {
		return err
	}
	if mapping != nil {
		return fmt.Errorf("luks: %s was closed, and its mapping %s is still there: somebody opened it again: stop that, and close the volume again", c.Device, c.path())
	}
	mounts, err := volume.MountsOf(device)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("luks: %s was closed, and is still mounted at %s: unmount it, and close the volume again", c.Device, mounts[0].Target)
	}
	content, err := c.inspect()
	if err != nil {
		return err
	}
	if !content.mine || !content.complete {
		return &volume.DamagedError{Location: c.Device, Problem: "it was closed, and its header is not that of this node any more (there is " + content.found + "): restore the header from a backup before the machine is restarted"}
	}
	return nil
}

// Rotate changes the key slot of the container. cryptsetup makes the new one before it removes the old one, so it can be stopped anywhere.
func (c *container) Rotate(ctx context.Context, old, next *keys.Secret) error {
	if err := needRoot("change the key of " + c.Device); err != nil {
		return err
	}
	if old.Equal(next) {
		return c.test(ctx, old)
	}
	hasNext, err := c.opens(ctx, next)
	if err != nil {
		return err
	}
	hasOld, err := c.opens(ctx, old)
	if err != nil {
		return err
	}
	switch {
	case hasNext && hasOld:
		c.Step("remove-key")
		return c.cryptsetup(ctx, old, nil, "luksRemoveKey", "--batch-mode", "--key-file", "-", "--keyfile-size", keySize, c.Device)
	case hasNext:
		return nil
	case !hasOld:
		return volume.ErrWrongKey
	}
	c.Step("change-key")
	args := append([]string{"luksChangeKey", "--batch-mode", "--key-file", "-", "--keyfile-size", keySize, "--new-keyfile-size", keySize}, cheap()...)
	return c.cryptsetup(ctx, old, next, append(args, c.Device, "/proc/self/fd/3")...)
}

func needRoot(doing string) error {
	if os.Geteuid() != 0 {
		return &volume.NeedsRootError{Kind: string(storage.LUKS), Doing: doing}
	}
	return nil
}
