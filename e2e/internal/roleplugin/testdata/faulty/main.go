// The faulty plugin: roles that do what no role should.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	// Its own executable is the only one that a role may execute.
	if len(os.Args) == 2 && os.Args[1] == "sleep" {
		time.Sleep(1000 * time.Second)
		return
	}
	role.Serve(role.Plugin{
		Name:    "faulty",
		Version: "0.1.0",
		Roles: []role.Role{
			{Name: "crasher", Summary: "Ends at once", Run: func(context.Context, *role.Host) error {
				return errors.New("the lamp is broken")
			}},
			{Name: "panicker", Summary: "Panics at once", Run: func(context.Context, *role.Host) error {
				panic("the lamp has burst")
			}},
			{Name: "quitter", Summary: "Ends at once, without an error", Run: func(context.Context, *role.Host) error {
				return nil
			}},
			{Name: "needy", Summary: "Requires a role", Requires: []string{"crasher"}, Run: idle},
			{Name: "orphan", Summary: "Requires what nobody provides", Requires: []string{"example.lens.v1"}, Run: idle},
			{Name: "noisy", Summary: "Writes what nobody asked for", Run: noisy},
			{Name: "stubborn", Summary: "Does not stop, and has a child that does not either", Run: stubborn},
			{Name: "waiting", Summary: "Waits for its machine to have a lamp, which is a file of its data directory", Run: waiting},
			{Name: "behind", Summary: "Requires the one that waits", Requires: []string{"waiting"}, Run: idle},
			{Name: "tidy", Summary: "Takes long to put everything away", StopGrace: 2 * time.Minute, Run: tidy},
			{Name: "fading", Summary: "Says that it has seen better days", Run: fading},
		},
	})
}

func idle(ctx context.Context, host *role.Host) error {
	host.Ready()
	<-ctx.Done()
	return nil
}

// noisy writes more than any pipe holds, and lines that are poison for whoever parses them.
func noisy(ctx context.Context, host *role.Host) error {
	for _, line := range []string{`{"@message": 5}`, `{"@level": [], "@message": {}}`, `{`, "\x00\xff\x1b[31m", strings.Repeat("x", 200<<10)} {
		fmt.Fprintln(os.Stderr, line)
		fmt.Fprintln(os.Stdout, line)
	}
	host.Logger().Info("the fog horn is on", "times", 7)
	return idle(ctx, host)
}

func stubborn(_ context.Context, host *role.Host) error {
	signal.Ignore(syscall.SIGTERM)
	child := exec.Command("/proc/self/exe", "sleep")
	if err := child.Start(); err != nil {
		return err
	}
	host.SetValue("child", strconv.Itoa(child.Process.Pid))
	host.Ready()
	select {}
}

func waiting(ctx context.Context, host *role.Host) error {
	lit := false
	for first := true; ; first = false {
		_, err := os.Stat(filepath.Join(host.DataDirectory(), "lamp"))
		switch {
		case err == nil && (first || !lit):
			host.Ready()
		case err != nil && (first || lit):
			host.Blocked("the machine has no lamp")
		}
		lit = err == nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tidy takes longer to stop than a role may that does not say so.
func tidy(ctx context.Context, host *role.Host) error {
	host.Ready()
	<-ctx.Done()
	time.Sleep(15 * time.Second)
	return os.WriteFile(filepath.Join(host.DataDirectory(), "tidied"), []byte(host.StopReason().String()), 0o600)
}

func fading(ctx context.Context, host *role.Host) error {
	host.Degraded("the oil is low")
	<-ctx.Done()
	return nil
}
