package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/proto/limits"
)

// StopRecorded ends everything that earlier cores of this node left running, and removes what their instances left in the run directory. It is
// called before the first launch, and by whoever cleans up after a core that is dead for good; never while a core runs.
//
// What belongs to the node is known three ways, so that there is no moment at which a core may die without its instances being found
// again: by the records, whose processes are known by PID and start time, with their process groups; as root by user ID, since the range
// of the node is nobody else's; as an ordinary user, and for privileged roles, by the instance ID in their environment, or in that of their group's leader;
// and, where there are control groups, by those. Processes are
// held by pidfd and matched again before they are signalled. They get SIGTERM, and SIGKILL when the context ends or after 5 s, where
// the role of a recorded process needs no longer to stop.
//
// A record that cannot be read is reported in the log and removed like the others. What cannot be removed is reported and left: no later
// instance has the same directories, since its number is another. A *SurvivorsError names processes that did not end.
func (l *Launcher) StopRecorded(ctx context.Context) error {
	records, err := l.records()
	if err != nil {
		return err
	}
	return l.endRecorded(ctx, records, nil)
}

// records returns the records that this core understands.
func (l *Launcher) records() ([]record, error) {
	records, problems, err := l.readRecords()
	if err != nil {
		return nil, fmt.Errorf("plugin: records of instances: %w", err)
	}
	for _, problem := range problems {
		l.log.Warn("the record of an instance is not readable; its processes are found by their user or environment", "error", problem)
	}
	return records, nil
}

// endRecorded ends and removes everything of the node but what belongs to the adopted.
func (l *Launcher) endRecorded(ctx context.Context, records []record, kept adopted) error {
	ofNode := l.belongsTo(records)
	belongs := func(pid int) bool { return ofNode(pid) && !kept.owns(pid) }
	if left, err := proc.Find(belongs); err != nil {
		return fmt.Errorf("plugin: %w", err)
	} else if len(left) > 0 {
		l.log.Info("stopping what an earlier core left running", "processes", len(left), "instances", len(records)-len(kept))
		proc.CloseAll(left)
		if err := sweep(ctx, "node "+l.nodeID, l.sweepGrace(records), belongs); err != nil {
			return fmt.Errorf("plugin: %w", err)
		}
	}
	names := kept.names()
	// What is in the groups has escaped all of that, or there is nothing in them.
	if l.groups != nil {
		if err := l.groups.Sweep(func(name string) bool { return names[name] }); err != nil {
			return fmt.Errorf("plugin: %w", err)
		}
	}
	if err := l.drainSpools(ctx, names); err != nil {
		l.log.Warn("not everything that earlier instances wrote is in their logs", "error", err)
	}
	for _, dir := range []string{l.pluginDir(), filepath.Join(l.runDir, "host"), filepath.Join(l.runDir, "access"), l.instancesDir()} {
		// What is below may have been written by roles.
		if err := l.removeBut(ctx, dir, names); err != nil {
			l.log.Warn("what earlier instances left cannot be removed entirely; it is in nobody's way, remove it by hand", "error", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plugin: clean up after instances: %w", err)
	}
	return nil
}

// sweepGrace says how long a process has between SIGTERM and SIGKILL. A recorded process has the stop grace of its role, since no core can ask it over RPC; every other
// process has termGrace.
func (l *Launcher) sweepGrace(records []record) func(pid int) time.Duration {
	of := make(map[int]time.Duration)
	for _, r := range records {
		spec, err := r.spec()
		if err != nil || r.PID <= 1 || r.BootID != l.bootID {
			continue
		}
		if s, err := proc.ReadStat(r.PID); err != nil || s.Start != r.Start {
			continue
		}
		if declared := store.ManifestOf(spec.Plugin, r.Role).GetStopGrace(); declared != nil {
			of[r.PID] = limits.StopGraceOf(declared)
		}
	}
	return func(pid int) time.Duration { return max(of[pid], termGrace) }
}

// TakeAwaySpools unmounts and removes the spools of a node's instances, unless one of their processes still runs; then running is true and nothing is changed. It is for a
// node whose volume is closed. The records stay for the next core.
func TakeAwaySpools(runDir, nodeID string, log hclog.Logger) (running bool, err error) {
	l := &Launcher{log: log, runDir: filepath.Clean(runDir), nodeID: nodeID, users: &users.Users{}}
	l.outputs = &output.Keeper{Dir: l.instancesDir()}
	if l.bootID, err = proc.BootID(); err != nil {
		return false, fmt.Errorf("plugin: boot ID: %w", err)
	}
	records, err := l.records()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ofNode := l.belongsTo(records)
	ofUser := func(uid uint32) bool {
		return slices.ContainsFunc(records, func(r record) bool { return !r.SharedUID && r.UID != 0 && r.UID == uid })
	}
	left, err := proc.Find(func(pid int) bool { return ofNode(pid) || proc.HasUID(pid, ofUser) })
	proc.CloseAll(left)
	if err != nil {
		return false, fmt.Errorf("plugin: %w", err)
	}
	if len(left) > 0 {
		return true, nil
	}
	names, err := l.outputs.Spools()
	for _, name := range names {
		err = errors.Join(err, l.outputs.RemoveSpool(name))
	}
	if err != nil {
		return false, fmt.Errorf("plugin: %w", err)
	}
	return false, nil
}

// drainSpools brings what instances wrote that have ended while no core ran into the logs, and removes their spools.
func (l *Launcher) drainSpools(ctx context.Context, kept map[string]bool) error {
	names, err := l.outputs.Spools()
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		if kept[name] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(append(problems, err)...)
		}
		if err := l.drainSpool(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("cannot read the last output of instance %s: %w", name, err))
		}
		problems = append(problems, l.outputs.RemoveSpool(name))
	}
	return errors.Join(problems...)
}

func (l *Launcher) drainSpool(name string) error {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 {
		return fmt.Errorf("%s is not the name of an instance", name)
	}
	role := name[:dot]
	log, err := l.outputs.AdoptStderr(l.roleLog(role, l.instanceID(role, name[dot+1:])), role, name)
	if err != nil {
		return err
	}
	log.Finish()
	log.Tell()
	return nil
}

// removeBut removes what is in a directory but what is kept under one of the names.
func (l *Launcher) removeBut(ctx context.Context, dir string, names map[string]bool) error {
	if len(names) == 0 {
		return rmtree.Empty(ctx, dir)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		name := entry.Name()
		if dir == l.instancesDir() {
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		if !names[name] {
			err = errors.Join(err, rmtree.Remove(ctx, filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// belongsTo returns a test for the processes of this node's instances.
func (l *Launcher) belongsTo(records []record) func(pid int) bool {
	leaders := make(map[int]record)
	for _, r := range records {
		if r.PID > 1 && r.BootID == l.bootID {
			leaders[r.PID] = r
		}
	}
	marked := func(pid int) bool { return strings.HasPrefix(instanceOf(pid), l.nodeID+"/") }
	ofRecord := func(pid int) bool {
		s, err := proc.ReadStat(pid)
		if err != nil {
			return false
		}
		if r, ok := leaders[pid]; ok && r.Start == s.Start {
			return true
		}
		r, ok := leaders[s.PGRP]
		if !ok || s.Start < r.Start || !proc.HasUID(pid, func(uid uint32) bool { return uid == r.UID }) {
			return false
		}
		// The number of a group is not used again while the group has members, nor that of a process while it is a group's: the group is
		// the record's unless its number now belongs to a later process.
		leader, err := proc.ReadStat(r.PID)
		if err == nil {
			return leader.Start == r.Start
		}
		// The leader is gone, and the number may since have been that of another's group whose first process has ended as well. The user tells whose it is, unless
		// others have it too.
		return !r.SharedUID || marked(pid)
	}
	if !l.users.Shared() {
		isRoot := func(uid uint32) bool { return uid == 0 }
		// Privileged roles run as root. Anybody may give a process of his own the mark, root's are nobody else's.
		return func(pid int) bool {
			return proc.HasUID(pid, l.users.Held) || ofRecord(pid) || proc.HasUID(pid, isRoot) && marked(pid)
		}
	}
	return func(pid int) bool {
		if marked(pid) || ofRecord(pid) {
			return true
		}
		// A role's child may have another environment, but not easily another group.
		s, err := proc.ReadStat(pid)
		return err == nil && s.PGRP > 1 && marked(s.PGRP)
	}
}
