package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/remit"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// reachTime is the timeout of a connection to an endpoint.
const reachTime = 5 * time.Second

func networkChecks() []Check {
	absent := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, serves, "no role that needs only its host, and its store, listens on a port")
	}
	checks := []Check{
		{
			ID: "network.published",
			Sentence: fmt.Sprintf("A role that is to listen on a port publishes at least one endpoint, with an address that can be connected to, within %s of its start: others find it in the directory and nowhere else.",
				readyTime),
			run: checkPublished,
		},
		{
			ID:    "network.reachable",
			needs: []string{"network.published"},
			Sentence: fmt.Sprintf("Every endpoint that a role which is Ready publishes with a host and a port accepts a connection within %s: it is shown to the whole cluster, and Ready says that it is served.",
				reachTime),
			run: checkReachable,
		},
		{
			ID:    "network.granted",
			needs: []string{"network.published"},
			Sentence: "A role listens only on TCP ports that its manifest asks for (grant " + remit.Listen + ") or lists among its ports. The sandbox refuses other ports where the kernel can; elsewhere " +
				"nobody has approved them.",
			run: checkPortsGranted,
		},
	}
	for n := range checks {
		checks[n].Profile, checks[n].absent = NetworkService, absent
		checks[n].needs = append(checks[n].needs, started("lifecycle.stop")...)
	}
	return checks
}

// serves reports whether a role listens on ports and can be observed doing so.
func serves(of *rolev1.RoleManifest) bool {
	powers, _ := remit.Of(of.GetGrants())
	return (len(of.GetPorts()) > 0 || !powers.Listen.None()) && standsAlone(of)
}

// eachServer calls ask for every role that listens on ports.
func (s *subject) eachServer(ask func(*rolev1.RoleManifest) error) error {
	return s.eachRole(func(of *rolev1.RoleManifest) error {
		if !serves(of) {
			return nil
		}
		return errors.Join(ask(of), s.endAll())
	})
}

// serving starts a role and waits until it has an endpoint that can be connected to. A role that waits for something that the suite lacks may have
// none.
func (s *subject) serving(ctx context.Context, of *rolev1.RoleManifest) (*instance, []string, error) {
	i, err := s.settled(ctx, of, "")
	if err != nil {
		return nil, nil, err
	}
	if err := i.cannotWork(); err != nil {
		return nil, nil, err
	}
	published := func(now *rolev1.WatchResponse) bool { return works(now) && len(addressesOf(now)) > 0 }
	now, err := i.await(ctx, readyTime, func(now *rolev1.WatchResponse) bool { return published(now) || failed(now) })
	if err != nil || failed(now) {
		now, _ = i.status.Get()
		return nil, nil, errors.Join(ctx.Err(), fmt.Errorf("it is %s (%s), and has published %d endpoints, none with an address that can be connected to%s",
			now.GetState(), now.GetReason(), len(now.GetEndpoints()), i.lastWords()))
	}
	return i, addressesOf(now), nil
}

// addressesOf returns the TCP addresses of the endpoints.
func addressesOf(now *rolev1.WatchResponse) (found []string) {
	for _, endpoint := range now.GetEndpoints() {
		if address := hostPort(endpoint.GetAddress()); address != "" {
			found = append(found, address)
		}
	}
	return found
}

func checkPublished(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachServer(func(of *rolev1.RoleManifest) error {
		_, addresses, err := s.serving(ctx, of)
		found = append(found, addresses...)
		return err
	})
	return strings.Join(found, ", "), err
}

func checkReachable(ctx context.Context, s *subject) (string, error) {
	return "", s.eachServer(func(of *rolev1.RoleManifest) error {
		i, addresses, err := s.serving(ctx, of)
		if err != nil {
			return err
		}
		for _, address := range addresses {
			if err := i.reach(ctx, address); err != nil {
				return fmt.Errorf("its endpoint %s accepts no connection: %w%s", address, err, i.lastWords())
			}
		}
		return nil
	})
}

// reach connects to an endpoint of a role. The role itself must listen on the port. Otherwise another host could answer for it, and the suite, which
// may be root, would connect wherever a plugin says.
func (i *instance) reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", text)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(i.listeners(), func(socket listening) bool { return socket.address.IsValid() && int(socket.address.Port()) == port }) {
		return fmt.Errorf("the role does not listen on port %d", port)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func checkPortsGranted(ctx context.Context, s *subject) (string, error) {
	return "", s.eachServer(func(of *rolev1.RoleManifest) error {
		i, _, err := s.serving(ctx, of)
		if err != nil {
			return err
		}
		powers, _ := remit.Of(of.GetGrants())
		if powers.Listen.Any || powers.Privileged {
			return nil
		}
		allowed := slices.Clone(powers.Listen.Numbers)
		for _, port := range of.GetPorts() {
			allowed = append(allowed, uint16(port.GetNumber()))
		}
		for _, socket := range i.listeners() {
			if socket.address.IsValid() && !slices.Contains(allowed, socket.address.Port()) {
				return fmt.Errorf("it listens on %s, and its manifest wants the ports %v", socket.address, allowed)
			}
		}
		return nil
	})
}
