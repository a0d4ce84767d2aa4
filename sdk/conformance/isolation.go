package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

func isolationChecks() []Check {
	absent := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, isConfined, "every role is "+remit.Privileged+", which is to have no sandbox")
	}
	return []Check{
		{
			ID:    "isolation.runs",
			needs: started("lifecycle.stop"),
			Sentence: fmt.Sprintf("In the sandbox of a node, with exactly the grants that its manifest asks for, the role reaches the same state as without a sandbox, works for %s, stops, and "+
				"starts again on its data. Whatever else it needs, no node will give it.", idleTime),
			absent: absent, sandbox: true,
			run: checkConfined,
		},
		{
			ID:       "isolation.processes",
			needs:    []string{"isolation.runs", "lifecycle.leftovers"},
			Sentence: "After a Stop, no child process of the role is left, even one that changed its process group, session and environment. A node could not find such a process.",
			absent:   absent, sandbox: true,
			run: checkDescendants,
		},
		{
			ID:    "isolation.files",
			needs: started("lifecycle.stop"),
			Sentence: fmt.Sprintf("A role opens files for writing only below its data directory, its runtime directory, and the paths that its manifest asks for (grant %s). Other files are in no backup, "+
				"nobody removes them, and the sandbox forbids them.", remit.WritePath),
			absent: absent,
			run:    checkForeignFiles,
		},
		{
			ID:    "isolation.sockets",
			needs: started("lifecycle.stop"),
			Sentence: "A role listens only on TCP ports that it declares or publishes, and on Unix sockets in its own directories. The owner must be able to see what can be reached, and every process can " +
				"reach an abstract socket.",
			absent: absent,
			run:    checkForeignSockets,
		},
	}
}

// isConfined reports whether a role has a sandbox.
func isConfined(of *rolev1.RoleManifest) bool {
	powers, _ := remit.Of(of.GetGrants()) // manifest.valid reports wrong grants
	return !powers.Privileged
}

// eachConfined calls ask for every role that has a sandbox.
func (s *subject) eachConfined(ask func(*rolev1.RoleManifest) error) error {
	return s.eachRole(func(of *rolev1.RoleManifest) error {
		if !isConfined(of) {
			return nil
		}
		return errors.Join(ask(of), s.endAll())
	})
}

// settledConfined starts a role in its sandbox and waits until it has come as far as without one.
func (s *subject) settledConfined(ctx context.Context, of *rolev1.RoleManifest, data string, without *rolev1.WatchResponse) (*instance, error) {
	i, err := s.startConfined(ctx, of, data)
	if err != nil {
		return nil, err
	}
	if err := i.settle(ctx, of); err != nil {
		return nil, err
	}
	if works(without) {
		want := func(now *rolev1.WatchResponse) bool {
			return works(now) && (now.GetState() == without.GetState() || without.GetState() != rolev1.RoleState_ROLE_STATE_READY)
		}
		if _, err := i.await(ctx, readyTime, func(now *rolev1.WatchResponse) bool { return want(now) || failed(now) }); err != nil {
			now, _ := i.status.Get()
			return nil, errors.Join(ctx.Err(), fmt.Errorf("it is %s (%s) after %s, and %s without one%s", now.GetState(), now.GetReason(), readyTime, without.GetState(), i.lastWords()))
		}
	}
	return i, i.lives()
}

func checkConfined(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachConfined(func(of *rolev1.RoleManifest) error {
		free := s.idle(ctx, of)
		if free.err != nil {
			return free.err
		}
		data, err := s.directory()
		if err != nil {
			return err
		}
		for n := range 2 {
			i, err := s.settledConfined(ctx, of, data, free.status)
			if err == nil && n == 0 {
				err = i.livesFor(ctx, idleTime)
			}
			if err == nil {
				err = i.stopped(ctx)
			}
			if err != nil {
				return fmt.Errorf("in its sandbox: %w", err)
			}
			if n == 0 {
				found = append(found, of.GetName()+" "+i.confined.enforced())
			}
		}
		return nil
	})
	return strings.Join(found, ", "), err
}

func checkDescendants(ctx context.Context, s *subject) (string, error) {
	return "", s.eachConfined(func(of *rolev1.RoleManifest) error {
		i, err := s.settledConfined(ctx, of, "", nil)
		if err == nil {
			err = i.stopped(ctx)
		}
		if err != nil {
			return err
		}
		left, err := i.confined.awaitGone(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("after its process ended, these child processes still ran: %s", strings.Join(left, ", "))
		}
		return err
	})
}

func checkForeignFiles(ctx context.Context, s *subject) (string, error) {
	return "", s.eachIdle(ctx, func(of *rolev1.RoleManifest, life *idleLife) error {
		powers, _ := remit.Of(of.GetGrants())
		own := append([]string{life.request.GetDataDirectory(), life.request.GetRuntimeDirectory()}, powers.Write...)
		for _, path := range life.written {
			if !slices.ContainsFunc(own, func(directory string) bool { return within(path, directory) }) && !powers.Privileged {
				return fmt.Errorf("it has %s open for writing", path)
			}
		}
		return nil
	})
}

// within reports whether path is directory or below it.
func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}

func checkForeignSockets(ctx context.Context, s *subject) (string, error) {
	return "", s.eachIdle(ctx, func(of *rolev1.RoleManifest, life *idleLife) error {
		if !isConfined(of) {
			return nil
		}
		known := declaredPorts(of, life.status)
		for _, socket := range life.listeners {
			switch {
			case socket.address.IsValid() && !slices.Contains(known, socket.address.Port()):
				return fmt.Errorf("it listens on %s, which is none of its endpoints and no port of its manifest", socket.address)
			case socket.address.IsValid():
			case !within(socket.path, life.request.GetDataDirectory()) && !within(socket.path, life.request.GetRuntimeDirectory()):
				return fmt.Errorf("it listens on the Unix socket %q, outside of its directories", socket.path)
			}
		}
		return nil
	})
}

// declaredPorts returns the TCP ports in a role's manifest and endpoints.
func declaredPorts(of *rolev1.RoleManifest, now *rolev1.WatchResponse) (ports []uint16) {
	for _, port := range of.GetPorts() {
		ports = append(ports, uint16(port.GetNumber()))
	}
	for _, endpoint := range now.GetEndpoints() {
		if _, port, err := net.SplitHostPort(hostPort(endpoint.GetAddress())); err == nil {
			number, _ := strconv.ParseUint(port, 10, 16)
			ports = append(ports, uint16(number))
		}
	}
	return ports
}

// hostPort returns the host:port of an endpoint; empty if unknown.
func hostPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil && !strings.Contains(address, "/") {
		return address
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Hostname() == "" {
		return ""
	}
	port := parsed.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[parsed.Scheme]
	}
	if port == "" {
		return ""
	}
	return net.JoinHostPort(parsed.Hostname(), port)
}
