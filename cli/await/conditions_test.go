package await_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// timed is something that becomes known some time after what was known before.
type timed struct {
	after time.Duration
	seen  await.Seen
	lost  error
}

func source(known ...timed) await.Source {
	return func(ctx context.Context, see func(await.Seen), lost func(error)) error {
		for _, one := range known {
			select {
			case <-time.After(one.after):
			case <-ctx.Done():
				return ctx.Err()
			}
			if one.lost != nil {
				lost(one.lost)
			} else {
				see(one.seen)
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func status(membership hostv1.MembershipState, instances ...*clusterv1.InstanceStatus) await.Seen {
	return await.Seen{Status: &nodev1.Status{
		Membership: &hostv1.Membership{State: membership}, Node: &clusterv1.NodeStatus{Instances: instances},
	}}
}

func volume(state clusterv1.StorageState, problem string) await.Seen {
	seen := status(home)
	seen.Status.Storage = &clusterv1.StorageStatus{State: state, Problem: problem}
	return seen
}

func instance(id string, state hostv1.InstanceState, pid int64) *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{Role: "beacon", InstanceId: id, State: state, Pid: pid}
}

const (
	home      = hostv1.MembershipState_MEMBERSHIP_STATE_HOME
	split     = hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT
	disowning = hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING
)

func TestConditions(t *testing.T) {
	failed := instance("N/beacon/2", failed, 0)
	failed.Reason = "it failed too often"
	failed.LastFailure = &clusterv1.Failure{
		Cause: "the process ended by itself", ExitCode: proto.Int32(3), Lines: []string{"panic: \x1bno"}, Failures: 11, Budget: 10, Window: durationpb.New(time.Minute),
	}
	tests := []struct {
		name       string
		conditions []await.Condition
		sources    []await.Source
		took       time.Duration
		// want is part of the error; empty: none.
		want string
		// next and details are parts of the advice and of the lines below the error.
		next, details string
	}{
		{
			name:       "a restart: the former instance does not count",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Ready, Former: "N/beacon/1"}},
			sources: []await.Source{source(
				timed{seen: status(home, instance("N/beacon/1", ready, 1))},
				timed{after: time.Second, seen: status(home, instance("N/beacon/2", starting, 2))},
				timed{after: time.Second, seen: status(home, instance("N/beacon/2", ready, 2))})},
			took: 2 * time.Second,
		},
		{
			name:       "a restart: what another instance came to is the answer at once",
			conditions: []await.Condition{&await.Role{Name: "beacon", NodeID: "N", State: await.Ready, Former: "N/beacon/1"}},
			sources:    []await.Source{source(timed{seen: status(home, failed)})},
			want:       "role beacon is Failed: it failed too often on node N",
			next:       "`reeve logs N beacon` to see what it wrote, and `reeve node role restart N beacon`",
			details:    "Its last failure: the process ended by itself (exit code 3; 11 failures in 1m0s, 10 are allowed).\nIt last wrote:\n  | panic:  no",
		},
		{
			name:       "a restart of a role that was Failed and stays so",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Ready, Former: "N/beacon/2"}},
			sources:    []await.Source{source(timed{seen: status(home, failed)})},
			want:       "role beacon is Failed", took: await.Settle,
		},
		{
			name:       "started: a process is enough, whatever its state",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Started}},
			sources: []await.Source{source(
				timed{seen: status(home, instance("N/beacon/1", backoff, 0))},
				timed{after: time.Second, seen: status(home, instance("N/beacon/2", starting, 2))})},
			took: time.Second,
		},
		{
			name:       "blocked is waited for, where nothing was changed",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Ready}},
			sources: []await.Source{source(
				timed{seen: status(home, instance("", blocked, 0))},
				timed{after: 30 * time.Second, seen: status(home, instance("N/beacon/2", ready, 2))})},
			took: 30 * time.Second,
		},
		{
			name:       "failed is what is waited for",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Failed}},
			sources:    []await.Source{source(timed{after: time.Second, seen: status(home, failed)})},
			took:       time.Second,
		},
		{
			name:       "membership",
			conditions: []await.Condition{await.Membership("Home")},
			sources:    []await.Source{source(timed{seen: status(split)}, timed{lost: errors.New("gone")}, timed{after: time.Second, seen: status(home)})},
			took:       time.Second,
		},
		{
			name:       "a membership that will never be",
			conditions: []await.Condition{await.Membership("Home")},
			sources:    []await.Source{source(timed{seen: status(disowning)})},
			want:       "the node is Disowning on node N",
		},
		{
			name:       "healthy",
			conditions: []await.Condition{await.Healthy()},
			sources: []await.Source{source(timed{seen: await.Seen{Node: &clusterv1.Node{}}},
				timed{after: time.Second, seen: await.Seen{Node: &clusterv1.Node{Healthy: true}}})},
			took: time.Second,
		},
		{
			name:       "several have to be so at the same time",
			conditions: []await.Condition{await.Healthy(), await.Membership("Home")},
			sources: []await.Source{
				source(timed{seen: status(home)}, timed{after: time.Second, seen: status(split)}, timed{after: 2 * time.Second, seen: status(home)}),
				source(timed{after: 2 * time.Second, seen: await.Seen{Node: &clusterv1.Node{Healthy: true}}}),
			},
			took: 3 * time.Second,
		},
		{
			name:       "one of several is not so in time",
			conditions: []await.Condition{await.Healthy(), await.Membership("Home")},
			sources:    []await.Source{source(timed{seen: status(home)})},
			want:       "the node is not healthy on node N in time: no curator has reported the node", took: time.Minute,
		},
		{
			name:       "a volume that is unlocked meanwhile, over a lost contact",
			conditions: []await.Condition{await.Volume("Open"), await.Membership("Home")},
			sources: []await.Source{source(
				timed{seen: volume(clusterv1.StorageState_STORAGE_STATE_LOCKED, "PCR 7 has changed")}, timed{after: time.Second, lost: errors.New("gone")},
				timed{after: time.Second, seen: volume(clusterv1.StorageState_STORAGE_STATE_OPEN, "")})},
			took: 2 * time.Second,
		},
		{
			name:       "a volume that nobody unlocks",
			conditions: []await.Condition{await.Volume("Open")},
			sources:    []await.Source{source(timed{seen: volume(clusterv1.StorageState_STORAGE_STATE_LOCKED, "PCR 7 has changed")})},
			want:       "the volume is not Open on node N in time: the volume is Locked: PCR 7 has changed", took: time.Minute,
		},
		{
			name:       "nobody says anything",
			conditions: []await.Condition{&await.Role{Name: "beacon", State: await.Ready}},
			sources:    []await.Source{source()},
			want:       "role beacon is not Ready on node N in time: nobody has reported the node", took: time.Minute,
		},
		{
			name:       "nobody is asked",
			conditions: []await.Condition{await.Healthy()},
			want:       "there is no source",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				var told record
				texts, err := await.For(ctx, "N", test.sources, test.conditions, &told)
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, want %s: %q", took, test.took, told)
				}
				if test.want == "" {
					if err != nil || len(texts) != len(test.conditions) {
						t.Errorf("it says %q, error %v", texts, err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.next) {
					t.Errorf("error %v, want one with %q and %q", err, test.want, test.next)
				}
				if details := strings.Join(fault.Details(err), "\n"); !strings.Contains(details, test.details) {
					t.Errorf("details %q, want some with %q", details, test.details)
				}
			})
		})
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"role/a-b=ready": "role a-b is Ready", "ROLE/x=Gone": "role x is gone", "role/x=STARTED": "role x is started", "role/x=Backoff": "role x is Backoff",
		"membership=HOME": "the node is Home", "Healthy": "the node is healthy",
		"volume=open": "the volume is Open",
	} {
		condition, err := await.Parse(text, "N")
		if err != nil || condition.Wanted() != want || condition.Unmet() != strings.Replace(want, " is ", " is not ", 1) {
			t.Errorf("%s is %v, error %v, want %q", text, condition, err, want)
		}
	}
	for _, text := range []string{"", "role", "role/", "role/x", "role/x=", "role/x=Happy", "role/X=Ready", "membership", "membership=", "volume", "volume=", "volume=Shut", "healthy=yes", "node=up", "role/x\n=Ready"} {
		if condition, err := await.Parse(text, "N"); fault.CodeOf(err) != fault.Usage {
			t.Errorf("%q is %v, error %v", text, condition, err)
		}
	}
}

// TestStatesAreComplete holds that every state of an instance and of a membership may be waited for.
func TestStatesAreComplete(t *testing.T) {
	for number, name := range hostv1.InstanceState_name {
		word := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "INSTANCE_STATE_")), "_", "")
		if number != 0 && !slices.ContainsFunc(await.States(), func(state string) bool { return strings.ToLower(state) == word }) {
			t.Errorf("%s cannot be waited for", name)
		}
	}
	if len(await.Memberships()) != len(hostv1.MembershipState_name)-1 {
		t.Errorf("memberships %q", await.Memberships())
	}
}
