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

// Config says where the volume is.
type Config struct {
	Log hclog.Logger
	// Device is the block device.
	Device string
	// Data is the node's data directory, where the volume is mounted.
	Data string
	// NodeID gives the container its UUID and its mapping its name.
	NodeID string
	// Step, if not nil, is called before each step in which a call changes the system.
	Step func(step string)
}

// KeySize is the key's size in bytes.
const KeySize = 64

// MinSize is the smallest device in bytes. The header takes 16 MiB.
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

// UUID returns the UUID of a node's container, a hash of the node's ID (version 8 of RFC 9562).
func UUID(nodeID string) string {
	id := sha256.Sum256([]byte("reeve luks v1\x00" + nodeID))
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// MappingName returns the name of a node's open container below /dev/mapper.
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
		return volume.Absent, &volume.DamagedError{Location: c.Device, Problem: "it is not this node's volume: there is " + content.found + ": name the right device (volume.luks.device), or restore it"}
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
		return &volume.DamagedError{Location: c.Device, Problem: "there is no volume on it: name the right device (volume.luks.device), or restore it"}
	}
	if err := volume.MakeMountPoint(c.Data); err != nil {
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

// open maps the container and reports true; false if it was mapped already. Either way the key must be right.
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

// shut removes the mapping, with which the kernel forgets the key. *volume.BusyError if it is in use.
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

// proveClosed fails unless the mapping is gone, nothing of it is mounted, and the container's header is intact.
func (c *container) proveClosed(device uint64) error {
	mapping, err := c.mapping()
	if err != nil {
		return err
	}
	if mapping != nil {
		return fmt.Errorf("luks: the mapping %[2]s of %[1]s is there again after it was closed: stop whoever opens it, and close the volume again", c.Device, c.path())
	}
	mounts, err := volume.MountsOf(device)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("luks: %s is closed but still mounted at %s: unmount it, and close the volume again", c.Device, mounts[0].Target)
	}
	content, err := c.inspect()
	if err != nil {
		return err
	}
	if !content.mine || !content.complete {
		return &volume.DamagedError{Location: c.Device, Problem: "its header was overwritten while it was open (there is " + content.found + "): restore the header from a backup before you restart the machine"}
	}
	return nil
}

// Rotate changes the key. cryptsetup adds the new key slot before it removes the old one, so Rotate may be interrupted anywhere.
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
	args := append([]string{"luksChangeKey", "--batch-mode", "--key-file", "-", "--keyfile-size", keySize, "--new-keyfile-size", keySize}, fastDerivation()...)
	return c.cryptsetup(ctx, old, next, append(args, c.Device, "/proc/self/fd/3")...)
}

func needRoot(doing string) error {
	if os.Geteuid() != 0 {
		return &volume.NeedsRootError{Kind: string(storage.LUKS), Doing: doing}
	}
	return nil
}
