package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestTheMachineIsNamed(t *testing.T) {
	tests := map[string]struct {
		configuration       string
		hostname, machineID string
	}{
		"by default":   {``, "former", ""},
		"switched off": {`{"hostname": false, "machineID": false}`, "former", ""},
		"the node ID":  {`{"hostname": true, "machineID": true}`, self, "00112233445566778899aabbccddeeff"},
		"another name": {`{"hostname": "web-1.example"}`, "web-1.example", ""},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			h := newHost("")
			h.configuration, h.grants = test.configuration, keeper.Grants()
			check := func() {
				t.Helper()
				h.put(func() {
					if h.hostname != test.hostname || h.machineID != test.machineID {
						t.Errorf("the machine is %q %q", h.hostname, h.machineID)
					}
				})
			}
			if err := during(t, h, func() {
				// The names do not wait for the cluster.
				want(t, h, "Starting", "")
				check()
				h.directory.Set(directory("192.0.2.1"))
				synctest.Wait()
				state, content, _ := h.now()
				line := strings.TrimSuffix(own, "\n")
				if test.hostname != "former" && test.hostname != self {
					line += " " + test.hostname
				}
				if state != "Ready" || !strings.Contains(content, "\n"+line+"\n") || !strings.Contains(content, "\n"+first) {
					t.Errorf("the role is %q, and the file holds %q", state, content)
				}
				// Somebody who names the machine otherwise does not last.
				if test.hostname != "former" {
					h.put(func() { h.hostname = "dhcp-7" })
					time.Sleep(2 * time.Minute)
					synctest.Wait()
				}
				check()
			}); err != nil {
				t.Error(err)
			}
			check() // and the names stay when the role goes
		})
	}
}

func TestTheMachineIsNotNamed(t *testing.T) {
	h := newHost("")
	h.configuration, h.grants = `{"hostname": true, "machineID": true}`, []role.Grant{{Name: "set-hostname"}}
	h.unnamed = fmt.Errorf("host: %w: run the core as root", fs.ErrPermission)
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Degraded: the host name is not set, since the node may not: ", first) // the file is written nevertheless
		state, _, _ := h.now()
		for _, part := range []string{"run the core as root", "; the machine ID is not set, since the role is not granted set-machine-id: have the cluster's owner grant it"} {
			if !strings.Contains(state, part) {
				t.Errorf("the reason does not say %q: %s", part, state)
			}
		}
		h.put(func() { h.unnamed = errors.New("the disk is full") })
		time.Sleep(10 * time.Second)
		want(t, h, "Degraded: the host name is not set: the disk is full; ", first)
	}); err != nil {
		t.Error(err)
	}
}

func TestAnotherMachineIDStays(t *testing.T) {
	h := newHost("")
	h.configuration, h.grants, h.machineID = `{"machineID": true}`, keeper.Grants(), "f"
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Degraded: the machine has another ID than the node's already and keeps it: ", first)
		h.put(func() { h.machineID = "" })
		time.Sleep(10 * time.Second)
		want(t, h, "Ready", first)
	}); err != nil {
		t.Error(err)
	}
}

// What is written in place is said, and is no reason to be Degraded.
func TestWrittenInPlace(t *testing.T) {
	tests := map[string]string{
		"written": "", "as it should be": "# BEGIN reeve\n# Kept by the role hostsfile. Do not edit: changes up to the line END are lost.\n" + first + own + "# END reeve\n",
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		before := tests[name]
		t.Run(name, func(t *testing.T) {
			h := newHost(before)
			h.configuration, h.grants, h.mounted = `{"hostname": true}`, keeper.Grants(), true
			h.directory.Set(directory("192.0.2.1"))
			published := func(want string) {
				t.Helper()
				synctest.Wait()
				h.put(func() {
					if got := h.values["written-in-place"]; got != want {
						t.Errorf("written in place: %q, want %q", got, want)
					}
				})
			}
			if err := during(t, h, func() {
				want(t, h, "Ready", first)
				published("/etc/hostname /etc/hosts")
				h.put(func() { h.mounted = false })
				h.directory.Set(directory("192.0.2.1", "192.0.2.2"))
				want(t, h, "Ready", first+second)
				published("")
			}); err != nil {
				t.Error(err)
			}
			if name == "as it should be" && h.replaced != 2 {
				t.Errorf("the file was written %d times, want once, and once at the end", h.replaced)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("")
		h.hang = make(chan struct{})
		h.directory.Set(directory("192.0.2.1"))
		k, ended := keeper.New(h), make(chan error, 1)
		if err := k.CheckHealth(t.Context()); err != nil {
			t.Errorf("before it runs: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- k.Run(ctx, h) }()
		time.Sleep(time.Minute)
		if err := k.CheckHealth(t.Context()); err != nil {
			t.Errorf("within a minute: %v", err)
		}
		time.Sleep(time.Second)
		if err := k.CheckHealth(t.Context()); err == nil || !strings.Contains(err.Error(), "for 1m1s") {
			t.Errorf("after a minute: %v", err)
		}
		close(h.hang)
		synctest.Wait()
		if err := k.CheckHealth(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		time.Sleep(time.Hour)
		if err := k.CheckHealth(t.Context()); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
