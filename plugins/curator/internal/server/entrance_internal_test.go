package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/sdk/event"
)

// told is a host that remembers.
type told struct {
	state     string
	endpoints map[string]string
	network   event.Value[[]string]
}

func (h *told) Ready()                           { h.state = "ready" }
func (h *told) Degraded(reason string)           { h.state = reason }
func (h *told) SetEndpoint(name, address string) { h.endpoints[name] = address }
func (h *told) SetValue(string, string)          {}
func (h *told) Network() *event.Value[[]string]  { return &h.network }

// inNamespace calls do on a thread with a network namespace of its own, in which ip changes addresses.
func inNamespace(t *testing.T, do func(ip func(...string) error) error) {
	t.Helper()
	program, err := exec.LookPath("ip")
	if os.Getuid() != 0 || err != nil {
		t.Skip("needs root and ip: a network namespace is made")
	}
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine and takes its namespace along.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		ip := func(arguments ...string) error {
			if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %v: %w: %s", arguments, err, output)
			}
			return nil
		}
		done <- errors.Join(ip("link", "set", "lo", "up"), do(ip))
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func newEntrance(listen string) (*entrance, *told) {
	host := &told{endpoints: make(map[string]string)}
	config := Config{Host: host, Configuration: configuration.Configuration{Listen: listen}, Log: hclog.NewNullLogger(), NodeID: "reeve-1", Role: "curator"}
	config.defaults()
	return &entrance{config: config, condition: &condition{host: host}}, host
}

// served reports whether an address leads to one of the listeners.
func served(address string, listeners []net.Listener) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, listener := range listeners {
		if listener.Addr().String() == address {
			accepted, err := listener.Accept()
			if err == nil {
				err = accepted.Close()
			}
			return err
		}
	}
	return fmt.Errorf("%s is none of the curator's", address)
}

// An address that the machine loses is told of, and its own curator is reached all the same. When it is back all is as before.
func TestLostAddress(t *testing.T) {
	inNamespace(t, func(ip func(...string) error) error {
		if err := ip("address", "add", "192.0.2.7/32", "dev", "lo"); err != nil {
			return err
		}
		e, host := newEntrance("192.0.2.7:0")
		listeners, unusable, err := e.open(context.Background())
		if err != nil || unusable != nil {
			return errors.Join(err, unusable)
		}
		for range 2 {
			e.look(context.Background())
			cluster, local := host.endpoints[rules.CapabilityCluster], host.endpoints[rules.EndpointLocal]
			if host.state != "ready" || !strings.HasPrefix(cluster, "192.0.2.7:") || !strings.HasPrefix(local, "127.0.0.1:") {
				return fmt.Errorf("with the address: %q, %v", host.state, host.endpoints)
			}
			if err := errors.Join(served(cluster, listeners), served(local, listeners), ip("address", "delete", "192.0.2.7/32", "dev", "lo")); err != nil {
				return err
			}
			e.look(context.Background())
			if !strings.Contains(host.state, "192.0.2.7") || !strings.Contains(host.state, "none of this machine") || host.endpoints[rules.CapabilityCluster] != cluster {
				return fmt.Errorf("without it: %q, %v", host.state, host.endpoints)
			}
			if err := errors.Join(served(local, listeners), ip("address", "add", "192.0.2.7/32", "dev", "lo")); err != nil {
				return err
			}
			e.look(context.Background())
		}
		return closeAll(listeners)
	})
}

func closeAll(listeners []net.Listener) (err error) {
	for _, listener := range listeners {
		err = errors.Join(err, listener.Close())
	}
	return err
}

// Where all addresses are listened on that is so of loopback too; without 127.0.0.1 it is ::1. Of a machine without either it is said.
func TestLocalWays(t *testing.T) {
	inNamespace(t, func(ip func(...string) error) error {
		for _, c := range []struct{ listen, lose, cluster, local string }{
			{":0", "", "10.0.0.1:", "127.0.0.1:"},
			{configuration.DefaultListen, "", "127.0.0.1:", ""},
			{"192.0.2.7:7443", "", "", "127.0.0.1:"}, // none of this machine
			{"192.0.2.7:7443", "127.0.0.1/8", "", "[::1]:"},
			{":0", "", "10.0.0.1:", "[::1]:"},
			{configuration.DefaultListen, "", "[::1]:", ""},
			{"192.0.2.7:7443", "::1/128", "", ""},
			{":0", "", "10.0.0.1:", ""},
		} {
			if c.lose != "" {
				if err := ip("address", "delete", c.lose, "dev", "lo"); err != nil {
					return err
				}
			}
			e, host := newEntrance(c.listen)
			host.network.Set([]string{"10.0.0.1"})
			listeners, _, err := e.open(context.Background())
			if (err != nil) != (c.cluster == "" && c.local == "") {
				return fmt.Errorf("%v: %w", c, err)
			}
			cluster, local := host.endpoints[rules.CapabilityCluster], host.endpoints[rules.EndpointLocal]
			if !strings.HasPrefix(cluster, c.cluster) || (cluster == "") != (c.cluster == "") || !strings.HasPrefix(local, c.local) || (local == "") != (c.local == "") {
				return fmt.Errorf("%v: %v", c, host.endpoints)
			}
			if local != "" {
				conn, err := net.Dial("tcp", local)
				if err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
				_ = conn.Close()
			}
			if err := closeAll(listeners); err != nil {
				return err
			}
		}
		return nil
	})
}
