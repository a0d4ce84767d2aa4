package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

var hostAttempts = map[string]func(*attempt){
	"host.ungranted": withHost(ungranted),
	"host.climb":     withHost(climb),
	"host.links":     withHost(links),
	"host.race":      withHost(race),
	"host.big":       withHost(big),
	"host.streams":   manyStreams,
	"host.slow":      slowReader,
	"host.garbage":   hostGarbage,
}

func withHost(perform func(*attempt, hostv1.HostServiceClient)) func(*attempt) {
	return func(a *attempt) {
		conn, err := dial(a.start.GetHostSocket())
		if err != nil {
			a.note("its own host socket", say(err))
			return
		}
		defer conn.Close()
		client := hostv1.NewHostServiceClient(conn)
		ctx, cancel := short()
		defer cancel()
		stream, err := client.WatchNetwork(ctx, &hostv1.WatchNetworkRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			a.note("a call that everybody may make", say(err))
			return
		}
		a.result.Values["works"] = "yes"
		perform(a, client)
	}
}

// ungranted makes every call that needs a grant, as a role without any.
func ungranted(a *attempt, client hostv1.HostServiceClient) {
	for _, path := range []string{"/etc/hosts", "/etc/shadow", granted, a.data("secret")} {
		a.rpc("ReadFile "+path, func(ctx context.Context) error {
			return drop(client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: path}))
		})
		a.rpc("ReplaceFile "+path, func(ctx context.Context) error {
			return drop(client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: path, Content: []byte("taken")}))
		})
	}
	a.rpc("SetHostname", func(ctx context.Context) error {
		return drop(client.SetHostname(ctx, &hostv1.SetHostnameRequest{Name: a.arguments["hostname"]}))
	})
	a.rpc("SetMachineID", func(ctx context.Context) error {
		return drop(client.SetMachineID(ctx, &hostv1.SetMachineIDRequest{MachineId: "0123456789abcdef0123456789abcdef"}))
	})
	a.rpc("WatchOperators", func(ctx context.Context) error {
		stream, err := client.WatchOperators(ctx, &hostv1.WatchOperatorsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
	if a.plugin.name == "grantee" {
		a.rpc("OpenConsensus", func(ctx context.Context) error {
			stream, err := client.OpenConsensus(ctx, &hostv1.OpenConsensusRequest{})
			for err == nil {
				var response *hostv1.OpenConsensusResponse
				if response, err = stream.Recv(); err == nil && response.GetOpen() != nil {
					return nil
				} else if unavailable := response.GetUnavailable(); unavailable != nil {
					return errors.New(unavailable.GetReason().String())
				}
			}
			return err
		})
	}
}

// climb names files that are reached from the granted one.
func climb(a *attempt, client hostv1.HostServiceClient) {
	directory := granted[:strings.LastIndex(granted, "/")]
	for _, path := range []string{
		directory + "/other", directory + "/../other", directory + "/./file", granted + "/../other", directory + "//file", granted + "/", granted + "\x00x",
		granted + "/.", "file", "./" + granted, "/proc/self/root" + granted, "/proc/1/root" + granted, "/dev/fd/0", strings.ToUpper(granted), granted + " ",
		"/etc/shadow", "/etc/../etc/shadow", granted + "/../../../../../../../../etc/shadow", directory, "/", "", strings.Repeat("/..", 1000) + granted,
	} {
		what := cut(strings.ReplaceAll(path, directory, "G"), 40)
		a.rpc(fmt.Sprintf("ReadFile %q", what), func(ctx context.Context) error {
			return drop(client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: path}))
		})
		a.rpc(fmt.Sprintf("ReplaceFile %q", what), func(ctx context.Context) error {
			return drop(client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: path, Content: []byte("taken")}))
		})
	}
	a.rpc("SetHostname", func(ctx context.Context) error {
		return drop(client.SetHostname(ctx, &hostv1.SetHostnameRequest{Name: a.arguments["hostname"]}))
	})
}

// links has the granted file, which lies in a directory of the role's own, be a link to what is not granted.
func links(a *attempt, client hostv1.HostServiceClient) {
	box := boxed[:strings.LastIndex(boxed, "/")]
	for _, target := range a.list("targets") {
		a.throughBox(client, "a symbolic link to "+target, func() error { return errors.Join(os.Mkdir(box, 0o755), os.Symlink(target, boxed)) })
		a.throughBox(client, "a hard link to "+target, func() error { return errors.Join(os.Mkdir(box, 0o755), os.Link(target, boxed)) })
		directory := target[:strings.LastIndex(target, "/")]
		a.throughBox(client, "its directory a symbolic link to "+directory, func() error { return os.Symlink(directory, box) })
	}
	a.throughBox(client, "a FIFO", func() error { return errors.Join(os.Mkdir(box, 0o755), syscall.Mkfifo(boxed, 0o666)) })
	a.throughBox(client, "a directory", func() error { return os.MkdirAll(boxed, 0o755) })
	_ = os.RemoveAll(box)
}

// throughBox makes the box anew, and then reads and replaces what is in it. The content says whose it is: what is the role's own is nothing gained.
func (a *attempt) throughBox(client hostv1.HostServiceClient, what string, make func() error) {
	_ = os.RemoveAll(boxed[:strings.LastIndex(boxed, "/")])
	if err := make(); err != nil {
		a.note(what, "cannot be made: "+say(err))
		return
	}
	a.rpc("read through "+what, func(ctx context.Context) error {
		return drop(client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: boxed}))
	})
	a.rpc("replace through "+what, func(ctx context.Context) error {
		return drop(client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: boxed, Content: []byte("taken")}))
	})
}

// race has the granted file and its directory change all the time while the core is asked to read and to replace it.
func race(a *attempt, client hostv1.HostServiceClient) {
	box := boxed[:strings.LastIndex(boxed, "/")]
	_ = os.RemoveAll(box)
	_ = os.RemoveAll(box + ".link")
	target := a.arguments["target"]
	_ = os.Mkdir(box, 0o755)
	_ = os.WriteFile(boxed, []byte("own"), 0o644)
	_ = os.Symlink(target[:strings.LastIndex(target, "/")], box+".link")
	_ = os.Symlink(target, box+"/link")
	stop := make(chan struct{})
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = exchange(box, box+".link")
			_ = exchange(box+"/"+boxed[strings.LastIndex(boxed, "/")+1:], box+"/link")
		}
	})
	deadline := time.Now().Add(2 * time.Second)
	calls := 0
	answers := make(map[string]int)
	for time.Now().Before(deadline) {
		calls++
		ctx, cancel := short()
		read, err := client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: boxed})
		switch {
		case err != nil:
			answers[say(err)]++
		case string(read.GetContent()) != "own":
			a.try(fmt.Sprintf("read %q by the race", cut(string(read.GetContent()), 40)), nil)
		}
		digest := read.GetDigest()
		_, err = client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: boxed, ExpectedDigest: digest, Content: []byte("own")})
		if err != nil {
			answers[say(err)]++
		}
		cancel()
	}
	close(stop)
	flipping.Wait()
	_ = os.RemoveAll(box)
	_ = os.RemoveAll(box + ".link")
	var most string
	for answer, n := range answers {
		if n > answers[most] {
			most = answer
		}
	}
	a.note(fmt.Sprintf("%d calls while the path changes", calls), cut(most, 100))
}

func big(a *attempt, client hostv1.HostServiceClient) {
	content := make([]byte, 64<<20)
	a.rpc("ReplaceFile with 64 MiB", func(ctx context.Context) error {
		return drop(client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: granted, Content: content}))
	})
	a.rpc("SetHostname of 16 MiB", func(ctx context.Context) error {
		return drop(client.SetHostname(ctx, &hostv1.SetHostnameRequest{Name: string(content[:16<<20])}))
	})
	a.rpc("ReadFile of a path of 4 MiB", func(ctx context.Context) error {
		return drop(client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: strings.Repeat("/a", 2<<20)}))
	})
}

// exchange swaps two paths in one step.
func exchange(one, other string) error {
	return unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
}
