// The tenant plugin: a role that does in its own house what it is told over HTTP. What it is, asks for and does wrong is set by the linker.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

// settings is set by the linker, and replaced in copies of the executable, since to link each of them takes longer than to test it: what the plugin is, asks for
// and does wrong, as "version=0.2.0;asks=listen port=any, connect port=53", with blanks behind it.
var settings = ""

// setting is one of the settings.
func setting(name, fallback string) string {
	for entry := range strings.SplitSeq(strings.TrimSpace(settings), ";") {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value
		}
	}
	return fallback
}

var (
	consensusUser = setting("user", "")
	version       = setting("version", "0.1.0")
	// behaviour is what is wrong with the version: "exit", "refuse", "hang" or "unsteady".
	behaviour = setting("behaviour", "")
)

func main() {
	if len(os.Args) == 2 {
		descend(os.Args[1])
		return
	}
	if behaviour == "unsteady" {
		version += "-" + strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	role.Serve(role.Plugin{
		Name:    setting("plugin", "tenant"),
		Version: version,
		Roles: []role.Role{{
			Name: setting("role", "tenant"), Summary: "Does what it is told", ConsensusUser: consensusUser, Grants: grants(),
			StartsFromCache: setting("cache", "") == "yes",
			CheckConfiguration: func([]byte) error {
				if behaviour == "refuse" {
					return errors.New("nothing pleases this version")
				}
				return nil
			},
			CheckHealth: func(ctx context.Context) error {
				if behaviour == "hang" {
					<-ctx.Done()
				}
				return ctx.Err()
			},
			Run: run,
		}},
	})
}

func grants() []role.Grant {
	var all []role.Grant
	for text := range strings.SplitSeq(setting("asks", "listen port=any"), ",") {
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		grant := role.Grant{Name: fields[0]}
		for _, field := range fields[1:] {
			if grant.Parameters == nil {
				grant.Parameters = make(map[string]string)
			}
			name, value, _ := strings.Cut(field, "=")
			grant.Parameters[name] = value
		}
		all = append(all, grant)
	}
	return all
}

func run(ctx context.Context, host *role.Host) error {
	if behaviour == "exit" {
		os.Exit(3)
	}
	host.SetValue("version", version)
	h := &house{host: host}
	if consensusUser != "" {
		kv, err := consensus.Dial(ctx, host)
		if err == nil {
			defer kv.Close()
			h.kv = kv
		} else {
			h.shut = err
		}
		host.SetValue("store", fmt.Sprint(h.shut))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h.rooms()}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	host.SetEndpoint("http", "http://"+listener.Addr().String())
	host.Ready()
	<-ctx.Done()
	// Somebody who was asked to stop has the time to say so.
	err = appendLine(filepath.Join(host.DataDirectory(), "stops"), version+" "+host.StopReason().String())
	err = errors.Join(err, server.Close())
	serving.Wait()
	return err
}

func appendLine(path, line string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

// descend is what children do: one that ends when it has a child of its own, and that one, which has a session of its own and does not end.
func descend(what string) {
	if what == "sleep" {
		fmt.Println(os.Getpid())
		time.Sleep(1000 * time.Second)
		return
	}
	process, err := os.StartProcess("/proc/self/exe", []string{"tenant", "sleep"}, &os.ProcAttr{
		Files: []*os.File{nil, os.Stdout, nil}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = process.Release()
}
