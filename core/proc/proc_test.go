package proc_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

func TestReadStat(t *testing.T) {
	t.Parallel()
	own, err := proc.ReadStat(os.Getpid())
	if err != nil || own.Dead() || own.PGRP != unix.Getpgrp() || own.Start == 0 {
		t.Errorf("of this process: %+v, %v", own, err)
	}
	command := exec.Command("true")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	handle, err := proc.Open(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ended, err := proc.ReadStat(command.Process.Pid); err != nil || !ended.Dead() || ended.Start < own.Start {
		t.Errorf("of one that has ended: %+v, %v", ended, err)
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.ReadStat(command.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that is gone: %v", err)
	}
}
