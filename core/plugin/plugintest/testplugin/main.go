// Command testplugin is a plugin for tests: what it does is said by a variable that was written into its executable (before the handshake) and by its
// configuration (afterwards). It misbehaves in every way that the tests of a core need.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/sdk/role"
)

// slot is overwritten in the executable: plugintest.Executable.Bytes.
var slot = [plugintest.SlotSize]byte{'<', 'v', 'a', 'r', 'i', 'a', 'n', 't', '>'}

func main() {
	variant := plugintest.Variant{}
	if encoded := plugintest.InSlot(slot[:]); encoded != nil {
		if err := json.Unmarshal(encoded, &variant); err != nil {
			fail("variant: %v", err)
		}
	}
	if len(os.Args) == 2 && os.Args[1] == "child" {
		hang()
	}
	if len(os.Args) == 3 && os.Args[1] == "listen" {
		impersonate(os.Args[2])
	}
	misbehave(variant)
	serve(variant)
}

// hang is for ever, in a way that the Go runtime does not take for a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// misbehave does what a plugin does not do before its handshake.
func misbehave(variant plugintest.Variant) {
	directory := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	switch variant.Before {
	case "", "unsteady":
	case "reach":
		reach(variant.Path)
	case "greedy":
		take(1 << 10)
		fail("there was memory enough")
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot find my own feet")
		os.Exit(7)
	case "garbage":
		fmt.Println("hello, world")
		hang()
	case "flood":
		chunk := []byte(strings.Repeat("x", 1<<20))
		for {
			if _, err := os.Stdout.Write(chunk); err != nil {
				fail("flood: %v", err)
			}
		}
	case "silent":
		signal.Ignore(syscall.SIGTERM)
		hang()
	case "close":
		_ = os.Stdout.Close()
		hang()
	case "half":
		fmt.Print("1|1|un")
		os.Exit(0)
	case "fork":
		// What made the handshake is not what goes on.
		for _, where := range []string{"group", "session", "nameless"} {
			if err := child(where); err != nil {
				fail("fork: %v", err)
			}
		}
		fmt.Println("1|1|unix|" + filepath.Join(directory, "plugin1") + "|grpc|")
		os.Exit(0)
	case "line":
		fmt.Println(variant.Line)
		hang()
	case "raw":
		serveRaw(variant, directory)
	case "newer":
		fmt.Println("1|2|unix|" + filepath.Join(directory, "plugin1") + "|grpc|")
		hang()
	case "outside":
		fmt.Println("1|1|unix|/run/plugin1|grpc|")
		hang()
	case "tcp":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		hang()
	case "netrpc":
		fmt.Println("1|1|unix|" + filepath.Join(directory, "plugin1") + "|netrpc|")
		hang()
	case "deaf":
		if _, err := net.Listen("unix", filepath.Join(directory, "plugin1")); err != nil {
			fail("listen: %v", err)
		}
		fmt.Println("1|1|unix|" + filepath.Join(directory, "plugin1") + "|grpc|")
		hang()
	case "foreign":
		// A socket of somebody else, behind a path that looks like one's own.
		link := filepath.Join(directory, "plugin1")
		if err := os.Symlink(variant.Path, link); err != nil {
			fail("symlink: %v", err)
		}
		fmt.Println("1|1|unix|" + link + "|grpc|")
		hang()
	default:
		fail("no such variant %q", variant.Before)
	}
}

func serve(variant plugintest.Variant) {
	p := role.Plugin{Name: variant.Name, Version: "0.1.0"}
	for _, r := range variant.Roles {
		summary := ""
		if variant.Before == "unsteady" {
			summary = fmt.Sprintf("I am %d", os.Getpid())
		}
		var heart atomic.Pointer[string]
		p.Roles = append(p.Roles, role.Role{
			Name: r.Name, Summary: summary, Requires: r.Requires, Provides: r.Provides, ConsensusUser: r.ConsensusUser, EndsWithCore: r.EndsWithCore,
			StopGrace:          time.Duration(r.StopSeconds) * time.Second,
			CheckConfiguration: func(document []byte) error { return role.Decode(document, &plugintest.Configuration{}) },
			CheckHealth: func(context.Context) error {
				if path := heart.Load(); path != nil {
					return os.WriteFile(*path, []byte("well"), 0o600)
				}
				return nil
			},
			Run: func(ctx context.Context, host *role.Host) error { return run(ctx, host, &heart) },
		})
	}
	role.Serve(p)
}

// run does what the configuration says. It sets heart to the file that the role writes whenever it is asked whether it is well.
func run(ctx context.Context, host *role.Host, heart *atomic.Pointer[string]) error {
	var c plugintest.Configuration
	if err := role.Decode(host.Configuration(), &c); err != nil {
		return err
	}
	if c.HealthWrites {
		path := filepath.Join(host.DataDirectory(), "health")
		heart.Store(&path)
	}
	for _, line := range c.Log {
		fmt.Fprintln(os.Stderr, line)
	}
	if c.Environment {
		fmt.Fprintln(os.Stderr, "environment "+strings.Join(os.Environ(), " "))
	}
	for _, where := range c.Children {
		if err := child(where); err != nil {
			return err
		}
	}
	for range c.Stdout {
		fmt.Println(strings.Repeat("o", 1023))
	}
	if err := flood(c.Lines, strings.Repeat("l", 1023)+"\n"); err != nil {
		return err
	}
	if err := flood(c.Line, strings.Repeat("l", 1024)); err != nil {
		return err
	}
	if c.Write != "" {
		if err := os.WriteFile(filepath.Join(host.DataDirectory(), "written"), []byte(c.Write), 0o600); err != nil {
			return err
		}
	}
	if c.LogAlways > 0 {
		go func() {
			for n := 0; ; n++ {
				fmt.Fprintln(os.Stderr, "line", n)
				time.Sleep(time.Duration(c.LogAlways) * time.Millisecond)
			}
		}()
	}
	for _, what := range c.Try {
		host.SetValue(strings.ReplaceAll(what, " ", "-"), try(what))
	}
	if c.Forks > 0 {
		host.SetValue("forks", fmt.Sprint(fork(c.Forks)))
	}
	if c.Signalled {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR1)
		host.Ready()
		<-signals
	}
	switch c.Do {
	case "ready":
		host.SetEndpoint("test", "127.0.0.1:1")
		host.SetValue("pid", fmt.Sprint(os.Getpid()))
		host.Ready()
	case "degraded":
		host.Degraded("the sky is\ngrey")
	case "blocked":
		host.Blocked("there is no\nlamp")
	case "slow":
		host.Ready()
		<-ctx.Done()
		time.Sleep(7 * time.Second) // longer than what has no time of its own gets
		return os.WriteFile(filepath.Join(host.DataDirectory(), "written"), []byte("late"), 0o600)
	case "starting":
	case "fail":
		return errors.New("no strength left")
	case "return":
		return nil
	case "panic":
		panic("lost my marbles")
	case "exit":
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM) // before anybody is told that it is there
		host.Ready()
		hang()
	default:
		return fmt.Errorf("no such thing to do: %q", c.Do)
	}
	take(c.Memory)
	<-ctx.Done()
	return nil
}

// flood writes so many MiB to standard error.
func flood(mebibytes int, text string) error {
	block := []byte(strings.Repeat(text, 1<<20/len(text)))
	for range mebibytes {
		// What is written faster than the core reads may be refused.
		if _, err := os.Stderr.Write(block); err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

// child starts a process that outlives this one if nobody ends it: in the same group, in a session of its own, or in one with an empty
// environment.
func child(where string) error {
	cmd := exec.Command("/proc/self/exe", "child")
	switch where {
	case "group":
	case "session":
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	case "nameless":
		cmd.Env = []string{"NOTHING=1"}
	default:
		return fmt.Errorf("no such child %q", where)
	}
	return cmd.Start()
}
