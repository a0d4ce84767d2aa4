package role_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// watched is a role whose answers to CheckHealth and GetMetrics are what its configuration says.
func watched() role.Role {
	w := &watchedRole{running: make(chan struct{})}
	return role.Role{
		Name: "watched", Run: w.run, CheckHealth: w.checkHealth, Metrics: w.metrics,
		CheckConfiguration: func(document []byte) error { return role.Decode(document, &watchedConfiguration{}) },
	}
}

type watchedConfiguration struct {
	Health  string `json:"health"`
	Metrics string `json:"metrics"`
}

type watchedRole struct {
	running       chan struct{} // closed when the rest is there
	host          *role.Host
	configuration watchedConfiguration
}

func (w *watchedRole) run(ctx context.Context, host *role.Host) error {
	if err := role.Decode(host.Configuration(), &w.configuration); err != nil {
		return err
	}
	w.host = host
	close(w.running)
	return wait(ctx, host)
}

func (w *watchedRole) checkHealth(ctx context.Context) error {
	<-w.running
	return w.do(ctx, w.configuration.Health)
}

func (w *watchedRole) metrics(ctx context.Context, to io.Writer) error {
	<-w.running
	fill := func(size int) error {
		for range size {
			_, _ = io.WriteString(to, "x") // without a look at the error
		}
		return nil
	}
	switch w.configuration.Metrics {
	case "few":
		_, err := fmt.Fprintln(to, "lighthouse_count 3")
		return err
	case "many":
		return fill(limits.Metrics)
	case "too many":
		return fill(limits.Metrics + 1)
	}
	return w.do(ctx, w.configuration.Metrics)
}

func (w *watchedRole) do(ctx context.Context, what string) error {
	switch what {
	case "fail":
		return status.Error(codes.Unimplemented, "no \xff luck")
	case "fail at length":
		return errors.New(strings.Repeat("ö", limits.Reason))
	case "panic":
		panic("out of luck")
	case "goexit":
		runtime.Goexit()
	case "hang":
		<-ctx.Done()
		w.host.SetValue("told", "to end")
		return ctx.Err()
	case "stay":
		select {}
	}
	return nil
}

func startWatched(t *testing.T, configuration string) *roletest.Process {
	t.Helper()
	process := launch(t, "probe")
	_, err := process.Service().CheckHealth(t.Context(), &rolev1.CheckHealthRequest{})
	wantCode(t, "CheckHealth before Start", err, codes.FailedPrecondition)
	_, err = process.Service().GetMetrics(t.Context(), &rolev1.GetMetricsRequest{})
	wantCode(t, "GetMetrics before Start", err, codes.FailedPrecondition)
	if err := process.Start(roletest.NewHost(t), "watched", configuration); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	return process
}

func TestCheckHealthAndMetrics(t *testing.T) {
	for _, want := range []struct {
		do      string
		code    codes.Code
		message string
	}{
		{"nothing", codes.OK, ""},
		{"fail", codes.Unknown, "no \uFFFD luck"},
		{"fail at length", codes.Unknown, strings.Repeat("ö", limits.Reason/2)},
		{"panic", codes.Unknown, "panic: out of luck"},
		{"goexit", codes.Unknown, "was ended by runtime.Goexit"},
	} {
		do := want.do
		t.Run(do, func(t *testing.T) {
			process := startWatched(t, fmt.Sprintf(`{"health": %q, "metrics": %q}`, do, do))
			for range 2 {
				_, health := process.Service().CheckHealth(t.Context(), &rolev1.CheckHealthRequest{})
				_, metrics := process.Service().GetMetrics(t.Context(), &rolev1.GetMetricsRequest{})
				for name, err := range map[string]error{"CheckHealth": health, "GetMetrics": metrics} {
					wantCode(t, name, err, want.code)
					if message := status.Convert(err).Message(); !strings.Contains(message, want.message) || len(message) > limits.Reason {
						t.Errorf("%s says %q, want %q", name, message, want.message)
					}
				}
			}
			if do == "panic" && !strings.Contains(process.Log(), "watchdog_test.go") {
				t.Errorf("the log does not say where the panic was:\n%s", process.Log())
			}
			if err := process.Stop(time.Minute); err != nil {
				t.Error(err)
			}
			wantExit(t, process, 0)
		})
	}
}

func TestMetrics(t *testing.T) {
	if got := startWatched(t, `{"metrics": "few"}`).Metrics(); got != "lighthouse_count 3\n" {
		t.Errorf("got %q", got)
	}
	if got := startWatched(t, `{"metrics": "many"}`).Metrics(); len(got) != limits.Metrics {
		t.Errorf("got %d bytes", len(got))
	}
	_, err := startWatched(t, `{"metrics": "too many"}`).Service().GetMetrics(t.Context(), &rolev1.GetMetricsRequest{})
	wantCode(t, "too many metrics", err, codes.Unknown)
	if message := status.Convert(err).Message(); !strings.Contains(message, "1048576 bytes") {
		t.Errorf("the error does not say how many are allowed: %s", message)
	}
}

// A role without the functions is well and has no metrics.
func TestNothingToAsk(t *testing.T) {
	process := start(t, roletest.NewHost(t), "probe", "")
	process.AwaitReady()
	if err := process.CheckHealth(); err != nil {
		t.Error(err)
	}
	if got := process.Metrics(); got != "" {
		t.Errorf("got %q", got)
	}
}

// A function that hangs harms nothing else, is told when nobody waits for it any more, and does not keep the role from stopping.
func TestQuestionsThatAreNotAnswered(t *testing.T) {
	for _, do := range []string{"hang", "stay"} {
		t.Run(do, func(t *testing.T) {
			process := startWatched(t, fmt.Sprintf(`{"health": %q, "metrics": %q}`, do, do))
			// A busy plugin may not have begun to answer when nobody waits any more: it is asked until it was told to end.
			told := func() bool {
				now, _ := process.Status().Get()
				return do != "hang" || now.GetValues()["told"] == "to end"
			}
			for n := 0; n < 3 || !told(); n++ {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := process.Service().CheckHealth(ctx, &rolev1.CheckHealthRequest{})
				wantCode(t, "CheckHealth", err, codes.DeadlineExceeded)
				_, err = process.Service().GetMetrics(ctx, &rolev1.GetMetricsRequest{})
				wantCode(t, "GetMetrics", err, codes.DeadlineExceeded)
				cancel()
			}
			if _, err := process.Service().Describe(t.Context(), &rolev1.DescribeRequest{}); err != nil {
				t.Error(err)
			}
			if err := process.Stop(time.Minute); err != nil {
				t.Error(err)
			}
			process.AwaitStopped()
			wantExit(t, process, 0)
		})
	}
}
