package await_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	blocked  = hostv1.InstanceState_INSTANCE_STATE_BLOCKED
	starting = hostv1.InstanceState_INSTANCE_STATE_STARTING
	ready    = hostv1.InstanceState_INSTANCE_STATE_READY
	degraded = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	backoff  = hostv1.InstanceState_INSTANCE_STATE_BACKOFF
	failed   = hostv1.InstanceState_INSTANCE_STATE_FAILED
	stopped  = hostv1.InstanceState_INSTANCE_STATE_STOPPED
)

// step is what the node reports, some time after the step before; or that the stream breaks, or ends with an error.
type step struct {
	after      time.Duration
	absent     bool
	state      hostv1.InstanceState
	generation uint64
	reason     string
	lost       error
	err        error
}

// script is a Source that plays steps and then stays silent.
type script []step

func (s script) source(ctx context.Context, see func(await.Seen), lost func(error)) error {
	for i, step := range s {
		select {
		case <-time.After(step.after):
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case step.err != nil:
			return step.err
		case step.lost != nil:
			lost(step.lost)
			continue
		}
		node := &clusterv1.Node{Status: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{{Role: "another", State: ready, ConfigurationGeneration: 7}}}}
		if !step.absent {
			node.Status.Instances = append(node.Status.Instances, &clusterv1.InstanceStatus{
				Role: "beacon", State: step.state, ConfigurationGeneration: step.generation, Reason: step.reason,
				Since: timestamppb.New(time.Unix(int64(i), 0)),
			})
		}
		see(await.Seen{Node: node})
	}
	<-ctx.Done()
	return ctx.Err()
}

type record []string

func (r *record) Now(text string) { *r = append(*r, text) }

func TestFor(t *testing.T) {
	const generation = 7
	tests := []struct {
		name   string
		remove bool
		steps  script
		// want is part of the error; empty: none.
		want string
		took time.Duration
		// told is what must have been said on the way.
		told string
	}{
		{
			name:  "ready",
			steps: script{{absent: true}, {state: starting, generation: 7}, {state: ready, generation: 7, after: time.Second}},
			took:  time.Second, told: "role beacon is Starting",
		},
		{
			name:  "ready with the former configuration is not enough",
			steps: script{{state: ready, generation: 6}, {after: 2 * time.Second, state: ready, generation: 7}},
			took:  2 * time.Second, told: "still with its former configuration",
		},
		{
			name:  "a failure of the former configuration does not count",
			steps: script{{state: failed, generation: 6}, {after: 30 * time.Second, state: ready, generation: 7}},
			took:  30 * time.Second,
		},
		{
			name:  "a failure that comes counts at once",
			steps: script{{state: starting, generation: 7}, {after: time.Second, state: failed, generation: 7, reason: "no disk"}},
			want:  "role beacon is Failed: no disk on node N", took: time.Second,
		},
		{
			name:  "a failure that was there may be older than the change",
			steps: script{{state: failed, generation: 7, reason: "no plugin"}, {after: time.Second, state: ready, generation: 7}},
			took:  time.Second,
		},
		{
			name:  "a failure that was there and stays counts",
			steps: script{{state: failed, generation: 7, reason: "no plugin"}},
			want:  "Failed: no plugin", took: await.Settle,
		},
		{
			name:  "blocked for a moment",
			steps: script{{state: blocked, generation: 7, reason: "x"}, {after: 2 * time.Second, state: starting, generation: 7}, {after: 9 * time.Second, state: ready, generation: 7}},
			took:  11 * time.Second,
		},
		{
			name:  "blocked and stays so",
			steps: script{{state: starting, generation: 7}, {after: time.Second, state: blocked, generation: 7, reason: "requires store"}},
			want:  "Blocked: requires store", took: time.Second + await.Settle,
		},
		{
			name:  "neither backing off nor degraded is an answer",
			steps: script{{state: backoff, generation: 7, reason: "exit status 3"}, {after: time.Second, state: degraded, generation: 7, reason: "slow"}},
			want:  "role beacon is not Ready on node N in time: role beacon is Degraded: slow", took: time.Minute,
		},
		{
			name:  "never reported",
			steps: script{{absent: true}},
			want:  "is not reported by the node yet", took: time.Minute,
		},
		{
			name:  "the cluster is lost and found",
			steps: script{{lost: fault.New(fault.Unreachable, "connection refused", "Do something.")}, {after: time.Second, state: ready, generation: 7}},
			took:  time.Second, told: "contact is lost: connection refused",
		},
		{
			name:  "the cluster refuses",
			steps: script{{err: errors.New("permission denied")}},
			want:  "permission denied",
		},
		{
			name: "removed", remove: true,
			steps: script{{state: ready, generation: 7}, {after: time.Second, absent: true}},
			took:  time.Second, told: "role beacon is Ready",
		},
		{
			name: "a role that is Failed can be removed", remove: true,
			steps: script{{state: failed, generation: 7}, {after: 9 * time.Second, absent: true}},
			took:  9 * time.Second,
		},
		{
			name: "it ended and left something", remove: true,
			steps: script{{state: ready, generation: 7}, {after: time.Second, state: stopped, reason: "the block was not removed"}},
			want:  "role beacon is Stopped: the block was not removed on node N", took: time.Second,
		},
		{
			name: "it stays", remove: true,
			steps: script{{state: ready, generation: 7}},
			want:  "role beacon is not gone on node N in time: role beacon is Ready", took: time.Minute,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				role := &await.Role{Name: "beacon", NodeID: "N", State: await.Ready, Generation: generation, BlockedIsFinal: true}
				if test.remove {
					role = &await.Role{Name: "beacon", NodeID: "N", State: await.Gone}
				}
				began := time.Now()
				var told record
				_, err := await.For(ctx, "N", []await.Source{test.steps.source}, []await.Condition{role}, &told)
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				switch {
				case test.want == "" && err != nil:
					t.Errorf("error %v", err)
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("error %v, want one with %q", err, test.want)
				case err != nil && fault.CodeOf(err) != fault.Failed:
					t.Errorf("exit code %d", fault.CodeOf(err))
				}
				if ok := err == nil && !test.remove; ok && role.Instance().GetState() != ready {
					t.Errorf("instance %v", role.Instance())
				}
				if text := strings.Join(told, "\n"); !strings.Contains(text, test.told) {
					t.Errorf("it said %q, want %q in it", text, test.told)
				}
			})
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := await.For(ctx, "N", []await.Source{script{}.source}, []await.Condition{&await.Role{Name: "beacon", State: await.Ready}}, &record{})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
}

func TestLines(t *testing.T) {
	tests := []struct {
		name  string
		width int
		want  string
	}{
		{"no terminal: one line for every change", 0, "Waiting (0s)\nWaiting: a (0s)\nWaiting: b (2s)\n"},
		{"a terminal: one line, with the time", 20,
			"\rWaiting (0s)\x1b[K\rWaiting: a (0s)\x1b[K\rWaiting: a (1s)\x1b[K\rWaiting: a (2s)\x1b[K\rWaiting: b (2s)\x1b[K\n"},
		{"a narrow terminal: what does not fit is left out", 12,
			"\rWaiting (0s)\x1b[K\rWaiting (0s)\x1b[K\rWaiting (1s)\x1b[K\rWaiting (2s)\x1b[K\rWaiting (2s)\x1b[K\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text strings.Builder
				lines := await.NewLines(&text, test.width, "Waiting", time.Now)
				synctest.Wait()
				lines.Now("a")
				lines.Now("a")
				time.Sleep(2 * time.Second)
				synctest.Wait()
				lines.Now("b")
				synctest.Wait()
				lines.Close()
				want := test.want
				if test.width == 12 {
					want = strings.ReplaceAll(want, "Waiting (", "Waitin (")
				}
				if got := text.String(); got != want {
					t.Errorf("it wrote %q\nwant     %q", got, want)
				}
			})
		})
	}
}
