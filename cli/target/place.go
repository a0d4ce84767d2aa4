package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
)

// PlaceName is a file in a dev directory with the inode number of that directory. A moved directory keeps its number, a copy has another one.
const PlaceName = "place"

// Inode returns the inode number of a directory as text.
func Inode(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s has no inode number", dir)
	}
	return strconv.FormatUint(stat.Ino, 10), nil
}

// Former returns where a dev directory was when its parameters were written; empty if it is there still, or has no parameters. copied says that it is a copy of the
// directory that is there. If there is none any more, it was moved, perhaps to another file system.
func Former(dir string) (former string, copied bool) {
	var parameters struct {
		Directories struct {
			System string `json:"system"`
		} `json:"directories"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "reeved.yaml"))
	if err != nil || yaml.Unmarshal(text, &parameters) != nil || !filepath.IsAbs(parameters.Directories.System) {
		return "", false
	}
	former = filepath.Dir(parameters.Directories.System)
	own, err := filepath.EvalSymlinks(dir)
	if err == nil {
		own, err = filepath.Abs(own)
	}
	if err != nil || own == filepath.Clean(former) {
		return "", false
	}
	here, err := os.Stat(own)
	if err != nil {
		return "", false
	}
	if there, err := os.Stat(former); err == nil && os.SameFile(here, there) {
		return "", false
	}
	inode, err := Inode(own)
	// File systems number their files each for itself: a copy on another one may have the number of the original, and then both have it.
	atFormer, errFormer := Inode(former)
	if recorded, errRead := os.ReadFile(filepath.Join(own, PlaceName)); err == nil && errRead == nil && strings.TrimSpace(string(recorded)) == inode && (errFormer != nil || atFormer != inode) {
		return former, false
	}
	_, err = os.Lstat(filepath.Join(former, "reeved.yaml"))
	return former, !errors.Is(err, fs.ErrNotExist)
}

// CheckCopy refuses a dev directory that is a copy of another one, whose node would be taken for its own.
func CheckCopy(dir string) error {
	former, copied := Former(dir)
	if !copied {
		return nil
	}
	return fault.New(fault.Refused, fmt.Sprintf("%s is a copy of the dev directory %s, and a node cannot be copied", dir, former),
		"Give --dir "+former+" for its node, or another directory to make another cluster in.")
}

// checkPlace refuses a copy, and says that no node runs in a directory that was moved, unless its node has run since before.
func checkPlace(dir string) error {
	if err := CheckCopy(dir); err != nil {
		return err
	}
	if former, _ := Former(dir); former != "" && !Held(dir) {
		return ErrNotRunning
	}
	return nil
}
