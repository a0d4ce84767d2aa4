package operate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

func TestDebugIsRefused(t *testing.T) {
	required := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED}
	tested := &clusterv1.ClusterPolicy{Conformance: clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED}
	for name, test := range inorder.Of(map[string]struct {
		allowed     bool
		known, view *clusterv1.ClusterPolicy
		want        string
	}{
		"by default":            {want: "debug_roles"},
		"isolation, offline":    {allowed: true, known: required, want: "isolation=required"},
		"isolation":             {allowed: true, view: required, want: "isolation=required"},
		"conformance":           {allowed: true, view: tested, want: "conformance=required"},
		"the view is newer":     {allowed: true, known: required, view: &clusterv1.ClusterPolicy{}},
		"allowed and no policy": {allowed: true},
	}) {
		r := &Room{AllowDebug: test.allowed, Policy: test.known, View: new(event.Value[*cluster.View])}
		if test.view != nil {
			r.View.Set(&cluster.View{Policy: test.view})
		}
		err := r.permitsDebug()
		if (test.want == "") != (err == nil) || err != nil && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// debugged takes the instances whose debugging was ended.
type debugged chan call

type call struct{ role, instance, why string }

func (debugged) Restart(context.Context, string, bool) (string, error) { return "", nil }

func (debugged) Debug(context.Context, *plugin.Debugged, bool) (string, error) { return "", nil }

func (d debugged) EndDebug(role, instanceID, why string) error {
	d <- call{role, instanceID, why}
	return nil
}

// TestDebugEndsWithThePolicy has the owner forbid debugging while roles are debugged: each of them ends, once, and so does one that is taken later.
func TestDebugEndsWithThePolicy(t *testing.T) {
	ended := make(chan call, 10)
	r := &Room{
		AllowDebug: true, View: event.New(&cluster.View{Policy: &clusterv1.ClusterPolicy{}}), Instances: new(event.Value[roles.Instances]), Roles: debugged(ended),
	}
	show := func(shown ...string) {
		now := roles.Instances{{Status: &clusterv1.InstanceStatus{Role: "own", InstanceId: "node/own/1"}}}
		for _, role := range shown {
			now = append(now, roles.Instance{Status: &clusterv1.InstanceStatus{Role: role, InstanceId: "node/" + role + "/1", Debug: true}})
		}
		r.Instances.Set(now)
	}
	show("a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.View.Set(&cluster.View{Policy: &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED}})
	got := []call{<-ended, <-ended}
	show("a", "b", "c")
	got = append(got, <-ended)
	cancel()
	<-done
	const why = "the cluster's policy isolation=required forbids debugging: a debugged role runs in no sandbox"
	if want := []call{{"a", "node/a/1", why}, {"b", "node/b/1", why}, {"c", "node/c/1", why}}; !slices.Equal(got, want) || len(ended) > 0 {
		t.Errorf("got %v and %d more, want %v", got, len(ended), want)
	}
}
