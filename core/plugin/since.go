package plugin

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// sinceSuffix comes to the name of an instance for the file, beside its record, with the state that is shown of it and the time since when.
const sinceSuffix = ".since"

func (l *Launcher) sincePath(name string) string {
	return filepath.Join(l.instancesDir(), name+sinceSuffix)
}

// KeepState keeps which state is shown of the instance since when, for the core that adopts it. Where that fails, the next core shows when it adopted the instance.
func (i *Instance) KeepState(state hostv1.InstanceState, since time.Time) {
	path := i.session.launcher.sincePath(i.session.remit.Name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		// One write, so that a core that is killed leaves the old state or the new one.
		content := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(state)), uint64(since.UnixNano()))
		_, err = file.WriteAt(content, 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		i.session.launcher.log.Debug("cannot keep since when a role is in its state", "role", i.session.remit.Role, "error", err)
	}
}

// KeptState returns what KeepState of this core or an earlier one kept last; the zero value if it kept nothing.
func (i *Instance) KeptState() (state hostv1.InstanceState, since time.Time) {
	content, err := os.ReadFile(i.session.launcher.sincePath(i.session.remit.Name))
	if err != nil || len(content) != 12 {
		return 0, time.Time{}
	}
	return hostv1.InstanceState(binary.BigEndian.Uint32(content)), time.Unix(0, int64(binary.BigEndian.Uint64(content[4:])))
}

// forgetState removes the file.
func (l *Launcher) forgetState(name string) error {
	if err := os.Remove(l.sincePath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
