package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// order asks for one attempt, with what an attacker is assumed to know.
type order struct {
	Attempt   string
	Arguments map[string]string
}

// try is one thing that was tried. Through says that it was not refused.
type try struct {
	What, Answer string
	Through      bool
}

// result is what became of an order.
type result struct {
	Attempt string
	Unknown bool
	Tries   []try
	Values  map[string]string
}

// attempt is an attempt while it is performed.
type attempt struct {
	*runner
	arguments map[string]string
	result    result
}

// attempts are all that there is.
func attempts() map[string]func(*attempt) {
	all := make(map[string]func(*attempt))
	for _, group := range []map[string]func(*attempt){
		keyAttempts, socketAttempts, hostAttempts, fileAttempts, processAttempts, binaryAttempts, kernelAttempts, identityAttempts, networkAttempts,
		outliveAttempts, exhaustAttempts, useAttempts, victimOrders,
	} {
		for name, perform := range group {
			all[name] = perform
		}
	}
	return all
}

type runner struct {
	start  *rolev1.StartRequest
	plugin *plugin
	state  victimState
}

func (r *runner) data(elements ...string) string {
	return filepath.Join(append([]string{r.start.GetDataDirectory()}, elements...)...)
}

func (r *runner) runtime(elements ...string) string {
	return filepath.Join(append([]string{r.start.GetRuntimeDirectory()}, elements...)...)
}

// follow performs orders as they come.
func (r *runner) follow() {
	known := attempts()
	_ = os.Mkdir(r.data("orders"), 0o755)
	for {
		entries, _ := os.ReadDir(r.data("orders"))
		for _, entry := range entries {
			name := entry.Name()
			if strings.HasPrefix(name, ".") {
				continue
			}
			content, err := os.ReadFile(r.data("orders", name))
			_ = os.Remove(r.data("orders", name))
			var o order
			if err != nil || json.Unmarshal(content, &o) != nil {
				continue
			}
			done := make(chan result, 1)
			go func() {
				// The thread is never unlocked: it dies, with whatever the attempt has done to it.
				runtime.LockOSThread()
				a := &attempt{runner: r, arguments: o.Arguments, result: result{Attempt: o.Attempt, Values: make(map[string]string)}}
				defer func() {
					if problem := recover(); problem != nil {
						a.note("panic", fmt.Sprint(problem))
					}
					done <- a.result
				}()
				if perform := known[o.Attempt]; perform != nil {
					perform(a)
				} else {
					a.result.Unknown = true
				}
			}()
			wait := 5 * time.Minute // only what hangs takes so long: filling a disk takes its time on a machine with other work
			if seconds, err := strconv.Atoi(o.Arguments["timeout"]); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
			var got result
			select {
			case got = <-done:
			case <-time.After(wait):
				got = result{Attempt: o.Attempt, Tries: []try{{What: "all of it", Answer: "did not come to an end", Through: true}}}
			}
			r.report(name, got)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *runner) report(name string, got result) {
	document, err := json.Marshal(got)
	if err == nil {
		_ = os.Mkdir(r.data("results"), 0o755)
		_ = os.WriteFile(r.data("results", "."+name), document, 0o644)
		err = os.Rename(r.data("results", "."+name), r.data("results", name))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile: no result of", name, err)
	}
}

// try records what became of something: nil is that it was not refused.
func (a *attempt) try(what string, err error) bool {
	answer := "done"
	if err != nil {
		answer = say(err)
	}
	a.result.Tries = append(a.result.Tries, try{what, answer, err == nil})
	return err == nil
}

// note records something that is neither refused nor not: for people.
func (a *attempt) note(what, answer string) {
	a.result.Tries = append(a.result.Tries, try{What: what, Answer: answer})
}

// say is an error in few words.
func say(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
	}
	if s, ok := status.FromError(err); ok {
		return s.Code().String() + ": " + cut(s.Message(), 120)
	}
	return cut(err.Error(), 160)
}

func cut(text string, most int) string {
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// system is a system call by its number, of which only whether it was refused matters.
func system(number uintptr, arguments ...uintptr) error {
	var a [6]uintptr
	copy(a[:], arguments)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

// descriptor is a system call that returns a descriptor, which is closed.
func descriptor(number uintptr, arguments ...uintptr) error {
	var a [6]uintptr
	copy(a[:], arguments)
	fd, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// list splits an argument of many.
func (a *attempt) list(name string) []string {
	return strings.Fields(a.arguments[name])
}

func (a *attempt) number(name string) int {
	n, _ := strconv.Atoi(a.arguments[name])
	return n
}
