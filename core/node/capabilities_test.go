package node

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/corecaps"
)

// withoutCapabilities calls a function on a thread that has lost some capabilities and ends then.
func withoutCapabilities(t *testing.T, numbers []uint, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		for _, number := range numbers {
			data[number/32].Effective &^= 1 << (number % 32)
		}
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Each capability that the core uses is named where it is missing: one that is needed keeps it from starting, another one does not.
func TestEveryCapabilityIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root has capabilities to lose")
	}
	var have []uint
	withoutCapabilities(t, nil, func() {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		_ = unix.Capget(&header, &data[0])
		for _, one := range corecaps.All {
			if data[one.Number/32].Effective>>(one.Number%32)&1 == 1 {
				have = append(have, one.Number)
			}
		}
	})
	for _, one := range corecaps.All {
		var said bytes.Buffer
		var (
			lacks []string
			err   error
		)
		withoutCapabilities(t, []uint{one.Number}, func() { lacks, err = checkCapabilities(hclog.New(&hclog.LoggerOptions{Output: &said})) })
		var lacking *CapabilitiesError
		switch {
		case one.Needed && (!errors.As(err, &lacking) || !strings.Contains(err.Error(), "without "+one.Name+" ")):
			t.Errorf("without %s: %v", one.Name, err)
		case !one.Needed && len(have) == len(corecaps.All) && (err != nil || !slices.Equal(lacks, []string{one.Name}) || !strings.Contains(said.String(), one.Name) || !strings.Contains(said.String(), one.Without)):
			t.Errorf("without %s: %v, %v, and the log has %q", one.Name, lacks, err, said.String())
		}
	}
	if len(have) == len(corecaps.All) {
		var said bytes.Buffer
		if lacks, err := checkCapabilities(hclog.New(&hclog.LoggerOptions{Output: &said})); err != nil || len(lacks) > 0 || said.Len() > 0 {
			t.Errorf("with all of them: %v, %v, %q", lacks, err, said.String())
		}
	}
}
