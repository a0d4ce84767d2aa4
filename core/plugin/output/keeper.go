package output

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/filewatch"
)

// What is kept of an instance in the directory of the records, under its name.
const (
	stdoutSuffix = ".out"
	offsetSuffix = ".log"
	spoolSuffix  = ".err"
)

// Keeper keeps the outputs of the instances of a node.
type Keeper struct {
	// Dir is the directory of the records of instances, Logs that of the logs of roles.
	Dir, Logs string

	stdouts filewatch.Watcher // alone, so that no handshake waits for what roles log
	stderrs filewatch.Watcher
}

func (k *Keeper) stdout(name string) string { return filepath.Join(k.Dir, name+stdoutSuffix) }
func (k *Keeper) offset(name string) string { return filepath.Join(k.Dir, name+offsetSuffix) }
func (k *Keeper) spool(name string) string  { return filepath.Join(k.Dir, name+spoolSuffix) }
func (k *Keeper) log(role string) string    { return filepath.Join(k.Logs, role+".log") }

// MakeStdout makes the standard output of an instance. write is for its process; the caller closes it once the process has it.
func (k *Keeper) MakeStdout(name string) (out *Stdout, write *os.File, err error) {
	return makeStdout(&k.stdouts, k.stdout(name))
}

// AdoptStdout takes over the standard output of an instance that has made its handshake.
func (k *Keeper) AdoptStdout(name string) (*Stdout, error) {
	return adoptStdout(&k.stdouts, k.stdout(name), true)
}

// MakeStderr makes the standard error of an instance and follows it into the log of its role, which says first that the instance begins. log is the core's. write is for the
// process; the caller closes it once the process has it.
func (k *Keeper) MakeStderr(log hclog.Logger, role, name, instanceID string) (out *Stderr, write *os.File, err error) {
	offset, from, err := keepOffset(k.offset(name), true)
	if err != nil {
		return nil, nil, err
	}
	spool, write, err := makeSpool(log, k.spool(name))
	if err != nil {
		offset.close()
		return nil, nil, err
	}
	if out, err = follow(log, spool, k.log(role), from, offset, &k.stderrs, instanceID); err != nil {
		return nil, nil, errors.Join(err, write.Close())
	}
	return out, write, nil
}

// AdoptStderr follows the standard error of an instance from where the core before came to. The error is fs.ErrNotExist if the instance has none.
func (k *Keeper) AdoptStderr(log hclog.Logger, role, name string) (*Stderr, error) {
	spool, err := openSpool(k.spool(name))
	if err != nil {
		return nil, err
	}
	offset, from, err := keepOffset(k.offset(name), false)
	if err != nil {
		return nil, errors.Join(err, spool.close())
	}
	return follow(log, spool, k.log(role), from, offset, &k.stderrs, "")
}

// Remove removes all that is kept of an instance but what is in the log.
func (k *Keeper) Remove(name string) error {
	err := errors.Join(k.RemoveSpool(name), removeFile(k.stdout(name)))
	if err == nil {
		err = removeFile(k.offset(name))
	}
	return err
}

// Spools lists the names of the instances that have a spool.
func (k *Keeper) Spools() (names []string, err error) {
	entries, err := os.ReadDir(k.Dir)
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), spoolSuffix); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// RemoveSpool removes the spool of an instance. What is in it is lost.
func (k *Keeper) RemoveSpool(name string) error { return removeSpool(k.spool(name)) }
