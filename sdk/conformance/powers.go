package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/roletest"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func powerChecks() []Check {
	absent := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, hasPowers, "no role wants a power of the host, a path or a capability")
	}
	checks := []Check{
		{
			ID:       "powers.granted",
			Sentence: "A role calls only what its manifest asks for. The host refuses every other call, and the owner sees each attempt.",
			run:      checkGranted,
		},
		{
			ID: "powers.withheld",
			Sentence: fmt.Sprintf("Started without what its manifest wants, a role refuses to start (InvalidArgument, FailedPrecondition or PermissionDenied), or states its status, lives on for %s within the bounds of store.patience, and says what it lacks if it then has failed: an owner may grant less than "+
				"is wanted, and take it back, and who looks at the role has to see why it does not work.", spinTime),
			run: checkWithheld,
		},
	}
	for n := range checks {
		checks[n].Profile, checks[n].needs, checks[n].absent = Privileged, started("lifecycle.stop", "resources.idle", "logging.bounded"), absent
	}
	return checks
}

// hasPowers reports whether a role wants powers beyond its own directories.
func hasPowers(of *rolev1.RoleManifest) bool {
	powers, _ := remit.Of(of.GetGrants())
	return powers.Tier() != clusterv1.Tier_TIER_CONFINED
}

// eachPowerful calls ask for every role that wants powers.
func (s *subject) eachPowerful(ask func(*rolev1.RoleManifest) error) error {
	return s.eachRole(func(of *rolev1.RoleManifest) error {
		if !hasPowers(of) {
			return nil
		}
		return errors.Join(ask(of), s.endAll())
	})
}

func checkGranted(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachPowerful(func(of *rolev1.RoleManifest) error {
		found = append(found, of.GetName()+" wants "+wanted(of))
		host := s.standIn(of)
		before := len(host.Refused())
		i, err := s.settled(ctx, of, "")
		if err == nil {
			err = i.livesFor(ctx, idleTime)
		}
		if err == nil {
			err = i.stopped(ctx)
		}
		if err != nil {
			return err
		}
		if refused := host.Refused()[before:]; len(refused) > 0 {
			slices.Sort(refused)
			return fmt.Errorf("its host has refused it %s, which it was not granted", strings.Join(slices.Compact(refused), ", "))
		}
		return nil
	})
	return strings.Join(found, "; "), err
}

// wanted lists the powers that a role wants, for people.
func wanted(of *rolev1.RoleManifest) string {
	var texts []string
	for _, grant := range of.GetGrants() {
		text := grant.GetName()
		for _, name := range slices.Sorted(maps.Keys(grant.GetParameters())) {
			text += " " + name + "=" + grant.GetParameters()[name]
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func checkWithheld(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachPowerful(func(of *rolev1.RoleManifest) error {
		configuration, err := s.configuration(of)
		if err != nil {
			return err
		}
		data, err := s.directory()
		if err != nil {
			return err
		}
		// A separate host that grants nothing.
		host := roletest.NewClusterIn(s.bench, s.work, 1).Host(0)
		socket := host.RoleSocket(s.bench, of.GetName())
		if usesStore(of) && s.users[of.GetName()] != nil {
			host.OpenStore(s.users[of.GetName()].Socket(), of.GetConsensusUser())
		}
		p, err := s.connected(ctx, "SPIFFE_ENDPOINT_SOCKET=unix://"+socket)
		if err != nil {
			return err
		}
		request := s.request(p, of, data, configuration)
		request.HostSocket, request.Grants, request.NodeId = socket, nil, host.NodeID()
		switch err := p.callStart(ctx, request); {
		case status.Code(err) == codes.InvalidArgument, status.Code(err) == codes.FailedPrecondition, status.Code(err) == codes.PermissionDenied:
			found = append(found, of.GetName()+" refuses to start: "+status.Convert(err).Message())
			return nil
		case err != nil:
			return fmt.Errorf("without what it wants, it answers Start with %w%s", err, p.lastWords())
		}
		i := s.follow(p, request)
		if _, err := i.await(ctx, statusTime, func(*rolev1.WatchResponse) bool { return true }); err != nil {
			if err := errors.Join(ctx.Err(), i.lives()); err != nil {
				return fmt.Errorf("without what it wants, %w", err)
			}
			return fmt.Errorf("without what it wants, it states no status within %s%s", statusTime, i.lastWords())
		}
		// resources.start judges its start.
		_, _ = i.await(ctx, statusTime, func(now *rolev1.WatchResponse) bool { return works(now) || blocked(now) || failed(now) })
		if err := i.spins(ctx, host); err != nil {
			return fmt.Errorf("without what it wants, %w", err)
		}
		now, _ := i.status.Get()
		found = append(found, fmt.Sprintf("%s is %s", of.GetName(), strings.TrimPrefix(now.GetState().String(), "ROLE_STATE_")))
		switch {
		case failed(now) && now.GetReason() != "":
			return nil
		case failed(now):
			return errors.New("without what it wants, it has failed and does not say why")
		case !i.alive():
			return fmt.Errorf("without what it wants, its process ends by itself (%s) and no status says why%s", i.exit(), i.lastWords())
		}
		return nil
	})
	return strings.Join(found, ", "), err
}
