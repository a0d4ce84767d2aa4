package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/proto/mountinfo"
)

// disk remembers, outside of a dev directory, on which mount it lies. Without it, `reeve dev up` on a mount point whose disk is not mounted would make another cluster there.
type disk struct {
	// Path is the dev directory as it was asked for.
	Path string `json:"path"`
	// Target is the mount point, Source what was mounted there.
	Target string `json:"target"`
	Source string `json:"source"`
}

func (p Places) diskFile(path string) string { return filepath.Join(p.Disks, short(path)+".json") }

// checkDisk refuses to make a dev directory where one was on a disk that is not mounted now. again forgets that one.
func (p Places) checkDisk(path string, again bool) error {
	if p.Disks == "" {
		return nil
	}
	was, err := readDisk(p.diskFile(path))
	if err != nil || was.Path != path {
		return nil // What cannot be read helps nobody, and is written anew.
	}
	if _, err := os.Lstat(filepath.Join(path, parametersName)); err == nil {
		return nil
	}
	mounts, err := mountinfo.Own()
	if err != nil {
		return err
	}
	if isMounted(mounts, was.Target) {
		return nil
	}
	if again {
		return os.Remove(p.diskFile(path))
	}
	return fault.New(fault.Refused, fmt.Sprintf("nothing is mounted at %s, where %s held the dev directory %s", was.Target, was.Source, path),
		"Mount it (`mount "+was.Target+"`), or give --again to give that cluster up and make another one.")
}

// keepDisk remembers on which mount a dev directory lies that is at state. What is on the root file system, or in memory, needs no memory.
func (p Places) keepDisk(path, state string) error {
	if p.Disks == "" {
		return nil
	}
	mounts, err := mountinfo.Own()
	if err != nil {
		return err
	}
	file := p.diskFile(path)
	on := mountinfo.On(mounts, state)
	if on == nil || on.Target == "/" || on.Type == "tmpfs" || on.Type == "ramfs" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	now := disk{Path: path, Target: on.Target, Source: on.Source}
	if was, err := readDisk(file); err == nil && was == now {
		return nil
	}
	if err := errors.Join(setup.MakeParents(p.Disks), makeOwn(p.Disks)); err != nil {
		return err
	}
	p.sweepDisks(mounts)
	content, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return replaceFile(file, content, 0o600)
}

// sweepDisks forgets the dev directories that were removed from their disks.
func (p Places) sweepDisks(mounts []mountinfo.Mount) {
	entries, _ := os.ReadDir(p.Disks)
	for _, entry := range entries {
		file := filepath.Join(p.Disks, entry.Name())
		was, err := readDisk(file)
		if err != nil || !isMounted(mounts, was.Target) {
			continue
		}
		if _, err := os.Lstat(was.Path); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(file)
		}
	}
}

func isMounted(mounts []mountinfo.Mount, target string) bool {
	return slices.ContainsFunc(mounts, func(m mountinfo.Mount) bool { return m.Target == target })
}

func readDisk(file string) (was disk, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return disk{}, err
	}
	return was, json.Unmarshal(content, &was)
}
