//go:build soak

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// status is what `reeve status -o json` promises, as far as these tests read it.
type status struct {
	Node struct {
		ID        string `json:"id"`
		Isolation string `json:"isolation"`
	} `json:"node"`
	Cluster struct {
		ID string `json:"id"`
	} `json:"cluster"`
	Membership struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"membership"`
	Storage struct {
		State      string   `json:"state"`
		Kind       string   `json:"kind"`
		Encrypted  bool     `json:"encrypted"`
		Sealer     string   `json:"sealer"`
		Step       string   `json:"step"`
		Problem    string   `json:"problem"`
		Weaknesses []string `json:"weaknesses"`
		Sources    []source `json:"sources"`
	} `json:"storage"`
	Roles []struct {
		Role  string `json:"role"`
		State string `json:"state"`
		PID   int    `json:"pid"`
	} `json:"roles"`
	// text is the whole document, for messages.
	text string
}

// source is one of the CUK.
type source struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// source returns the source of a name.
func (s status) source(name string) source {
	for _, source := range s.Storage.Sources {
		if source.Name == name {
			return source
		}
	}
	return source{}
}

// home says whether the node is a member in contact with its cluster, and runs its roles.
func (s status) home() bool {
	ready := 0
	for _, role := range s.Roles {
		if role.State == "Ready" {
			ready++
		}
	}
	return s.Membership.State == "Home" && ready == len(roles)
}

// watch follows what a node says of itself, by one `reeve status --watch` from the start of reeved to its end: to start a program for each look would keep an emulated
// processor from everything else.
type watch struct {
	// group is the process of the shell that starts it, and the group of its processes.
	group int
	// file has one document a line; read is how much of it was read, and part is the line that was not complete.
	file string
	read int64
	part []byte
	last status
	seen bool
	// uptime is how long the guest had been running when it was read.
	uptime time.Duration
}

// startWatch starts a watch. Its file is its own: what a node said before it was started is not what it says.
func (g *guest) startWatch(t *testing.T) {
	t.Helper()
	w := &watch{file: fmt.Sprintf("/tmp/status.%d", g.reeved)}
	// The command waits by itself for a node that it has seen once, but not for the first answer.
	const line = "while :; do until [ -S " + runDirectory + "/node.sock ]; do sleep 0.1; done; reeve status --watch -o json 2>>/tmp/status.errors; sleep 0.5; done"
	var err error
	if w.group, err = g.Start(t.Context(), w.file, "sh", "-c", line); err != nil {
		t.Fatal(err)
	}
	g.watch = w
}

// stopWatch ends the watch.
func (g *guest) stopWatch(t *testing.T) {
	t.Helper()
	g.must(t, "kill", "-KILL", fmt.Sprint(-g.watch.group))
	if _, err := g.Wait(t.Context(), g.watch.group, patience); err != nil {
		t.Fatal(err)
	}
	g.watch = nil
}

// latest returns what the node said last of itself. It is not ok before it has said anything.
func (g *guest) latest(ctx context.Context) (s status, ok bool, err error) {
	w := g.watch
	read, err := g.ReadTail(ctx, w.file, w.read)
	if err != nil {
		return s, false, err
	}
	w.uptime = read.Uptime
	w.read += int64(len(read.Content))
	w.part = append(w.part, read.Content...)
	end := bytes.LastIndexByte(w.part, '\n')
	if end < 0 {
		return w.last, w.seen, nil
	}
	line := bytes.Clone(w.part[bytes.LastIndexByte(w.part[:end], '\n')+1 : end])
	w.part = bytes.Clone(w.part[end+1:])
	s.text = string(line)
	if err := json.Unmarshal(line, &s); err != nil {
		return s, false, fmt.Errorf("reeve status: %w: %s", err, line)
	}
	w.last, w.seen = s, true
	return s, true, nil
}

// ask asks the node what it says of itself, at this moment.
func (g *guest) ask(t *testing.T) (s status) {
	t.Helper()
	s.text = g.must(t, "reeve", "status", "-o", "json")
	if err := json.Unmarshal([]byte(s.text), &s); err != nil {
		t.Fatalf("reeve status: %v: %s", err, s.text)
	}
	return s
}

// await waits until the node's status is as wanted, and returns it.
func (g *guest) await(t *testing.T, what string, wanted func(status) bool) status {
	t.Helper()
	return g.awaitFor(t, what, 0, wanted)
}

// awaitFor waits until the node's status is as wanted for some time, all of it by the guest's clock, and returns it.
func (g *guest) awaitFor(t *testing.T, what string, lasting time.Duration, wanted func(status) bool) status {
	t.Helper()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var begin, since time.Duration
	is := false
	for {
		s, ok, err := g.latest(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		now := g.watch.uptime
		if begin == 0 {
			begin = now
		}
		was := is
		if is = ok && wanted(s); is && !was {
			since = now
		}
		if is && now-since >= lasting {
			return s
		}
		if now-begin > patience {
			t.Fatalf("not within %s of the machine's own time: %s; last seen: %s", patience, what, s.text)
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// awaitHome waits until the node is Home with its roles, and says how long it took.
func (g *guest) awaitHome(t *testing.T, what string) status {
	t.Helper()
	begin, used := time.Now(), g.CPU()
	s := g.await(t, "Home with all roles", status.home)
	t.Logf("%s: Home after %s (%s of processor time), %s of its own time after the machine was switched on", what, time.Since(begin).Round(10*time.Millisecond),
		(g.CPU() - used).Round(10*time.Millisecond), g.watch.uptime.Round(10*time.Millisecond))
	return s
}
