package howto_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
	"github.com/reeveproject/reeve/e2e/internal/page"
)

// patience is how long something may take that a page says comes by itself.
const patience = time.Minute

// reader is somebody who follows a page.
type reader struct {
	t    *testing.T
	text *page.Page
	lab  *lab.Lab
	// desk is where the cluster is managed, machines are all machines by the names that comments of the page give them.
	desk     *lab.Machine
	machines map[string]*lab.Machine
	// names are what the page calls by a name of its own, and what it is here.
	names map[string]func() string
	// events are what happens between two commands, without the reader's doing.
	events map[string]func()
	// written is what was acknowledged to the test, besides what the page does.
	written []string
	// last is how the last command ended.
	last lab.Result
}

// newReader returns the reader of a page, by its path, at a desk in a lab of its own.
func newReader(t *testing.T, name string) *reader {
	t.Helper()
	if missing := lab.Missing(); missing != "" {
		t.Skip(missing)
	}
	text := page.Open(t, shared.Programs.Workspace, name)
	r := &reader{
		t: t, text: text, lab: lab.New(t, shared.Programs, shared.Base, "desk", "192.0.2.1"),
		machines: make(map[string]*lab.Machine), names: make(map[string]func() string), events: make(map[string]func()),
	}
	r.desk = r.lab.Machine(t, "operator", "192.0.2.2")
	r.machines["desk"] = r.desk
	return r
}

// follow runs every command of the page, in its order.
func (r *reader) follow() {
	r.t.Helper()
	root := r.machines["node"]
	r.text.Follow(r.t, func(step page.Step) {
		r.t.Helper()
		switch {
		case step.Verb == "event":
			event := r.events[step.Rest]
			if event == nil {
				r.fail(step.Part, "the test does not know the event %q; it knows %q", step.Rest, slices.Sorted(maps.Keys(r.events)))
			}
			began := time.Now()
			event()
			delete(r.events, step.Rest)
			r.t.Logf("%s:%d: %s (%s)", r.text.Name, step.Line, step.Text, time.Since(began).Round(time.Millisecond))
		case step.Verb == "on":
			if root = r.machines[step.Rest]; root == nil {
				r.fail(step.Part, "the test does not know the machine %q", step.Rest)
			}
		case step.Verb != "" || step.Expected.Stays != "":
			r.fail(step.Part, "the test does not know: %s", step.Text)
		case step.Kind == page.Command:
			machine := r.desk
			if step.Root {
				machine = root
			}
			r.run(step.Part, machine, step.Expected)
		case step.Expected.Shows == "":
			r.fail(step.Part, "a code block without a command, and no comment before it says what shows it")
		default:
			name, line, _ := strings.Cut(step.Expected.Shows, ": ")
			if r.machines[name] == nil {
				r.fail(step.Part, "the test does not know the machine %q", name)
			}
			r.shows(step.Part, r.machines[name], line)
		}
	})
	for name := range r.events {
		r.t.Errorf("%s: the test knows an event %q that the page has not", r.text.Name, name)
	}
}

func (r *reader) fail(part page.Part, format string, arguments ...any) {
	r.t.Helper()
	r.t.Fatalf("%s:%d: %s", r.text.Name, part.Line, fmt.Sprintf(format, arguments...))
}

// here is a text of the page with what its names are here.
func (r *reader) here(text string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		// What it is may have to be asked for, at a time when it can be.
		if strings.Contains(text, name) {
			pairs = append(pairs, name, r.names[name]())
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// run runs a command of the page.
func (r *reader) run(part page.Part, machine *lab.Machine, expected page.Expectation) {
	r.t.Helper()
	began := time.Now()
	line := r.here(part.Text)
	if expected.Repeat {
		eventually.True(r.t, patience, fmt.Sprintf("%s:%d: %s", r.text.Name, part.Line, line), func() (bool, string) {
			r.last = machine.Run(r.t, line)
			return r.last.Code == 0 && page.Unlike(r.hereAll(part.Shown), r.last.Stdout+r.last.Terminal) == "" &&
				strings.Contains(r.last.Stdout+r.last.Terminal, r.here(expected.Until)), r.last.String()
		})
	} else {
		r.last = machine.Run(r.t, line)
	}
	switch {
	case expected.Refused != "" && (r.last.Code == 0 || !strings.Contains(r.last.Terminal, r.here(expected.Refused))):
		r.fail(part, "it is not refused with %q: %s", expected.Refused, r.last)
	case expected.Refused == "" && r.last.Code != 0:
		r.fail(part, "%s", r.last)
	}
	if line := page.Unlike(r.hereAll(part.Shown), r.last.Stdout+r.last.Terminal); line != "" {
		r.fail(part, "the page shows %q: %s", line, r.last)
	}
	asked := ""
	if r.last.Questions > 0 {
		asked = ", and asked"
	}
	r.t.Logf("%s:%d: %s: %s (%s%s)", r.text.Name, part.Line, machine.Name, line, time.Since(began).Round(time.Millisecond), asked)
}

func (r *reader) hereAll(lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, r.here(line))
	}
	return all
}

// shows waits until a command shows a code block of the page.
func (r *reader) shows(part page.Part, machine *lab.Machine, line string) {
	r.t.Helper()
	line = r.here(line)
	eventually.True(r.t, patience, fmt.Sprintf("%s:%d: what %q shows", r.text.Name, part.Line, line), func() (bool, string) {
		result := machine.Run(r.t, line)
		missing := page.Unlike(r.hereAll(part.Shown), result.Stdout+result.Terminal)
		return result.Code == 0 && missing == "", fmt.Sprintf("%q is not in %s", missing, result)
	})
}

// says checks that the page has a text, such as what a table says of a message, and that what was said has its shape.
func (r *reader) says(text, said string) {
	r.t.Helper()
	if !strings.Contains(r.text.Text, text) {
		r.t.Errorf("%s does not say any more: %s", r.text.Name, text)
	}
	if !regexp.MustCompile(page.Shape(text)).MatchString(strings.Join(strings.Fields(said), " ")) {
		r.t.Errorf("%s says %q, and it is said: %s", r.text.Name, text, said)
	}
}

// firstNode makes a cluster on a machine, and logs in to it at the desk.
func (r *reader) firstNode(machine *lab.Machine) {
	r.t.Helper()
	machine.Must(r.t, "reeve init --owner-key owner.key --hosts-file /etc/hosts && systemctl enable --now reeved")
	r.home(machine)
	r.desk.Must(r.t, "scp root@"+machine.Address+":owner.key owner.key && ssh root@"+machine.Address+" 'rm owner.key && reeve ca' > ca.pem && "+
		"reeve login --name lab --address "+machine.Address+":7443 --ca ca.pem --key owner.key")
}

// join has machines become nodes by one ticket, approves them, and returns when they are Home.
func (r *reader) join(flags string, machines ...*lab.Machine) {
	r.t.Helper()
	made := r.desk.Must(r.t, fmt.Sprintf("reeve ticket create --uses %d --role hostsfile --role consensus --role curator -o json", len(machines)))
	var ticket struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal([]byte(made.Stdout), &ticket); err != nil || ticket.Text == "" {
		r.t.Fatalf("%v: a ticket of %d bytes", err, len(made.Stdout))
	}
	for _, machine := range machines {
		if err := os.WriteFile(machine.File("/root/ticket"), []byte(ticket.Text+"\n"), 0o600); err != nil {
			r.t.Fatal(err)
		}
		machine.Must(r.t, "reeve init --join ticket --role hostsfile --hosts-file /etc/hosts "+flags+" && rm ticket && systemctl enable --now reeved")
	}
	for _, machine := range machines {
		r.in(machine, "Foreign")
		r.desk.Must(r.t, "reeve node approve "+r.id(machine)+" --yes")
		r.home(machine)
	}
}

// home waits until a machine is a node of its cluster.
func (r *reader) home(machine *lab.Machine) {
	r.t.Helper()
	r.in(machine, "Home")
}

// in waits until a machine says that it is in a state.
func (r *reader) in(machine *lab.Machine, state string) {
	r.t.Helper()
	eventually.True(r.t, patience, machine.Name+" is "+state, func() (bool, string) {
		result := machine.Run(r.t, "reeve status -o json")
		status, err := devcluster.ParseStatus(result.Stdout)
		return err == nil && status.Membership.State == state, result.String()
	})
}

// id is the ID of the node on a machine.
func (r *reader) id(machine *lab.Machine) string {
	r.t.Helper()
	result := machine.Must(r.t, "reeve status -o json")
	status, err := devcluster.ParseStatus(result.Stdout)
	if err != nil || status.Node.ID == "" {
		r.t.Fatalf("%v: %s", err, result)
	}
	return status.Node.ID
}

// calls has the page call the node on a machine by a name, from now on.
func (r *reader) calls(name string, machine *lab.Machine) {
	id := ""
	r.names[name] = func() string {
		if id == "" {
			id = r.id(machine)
		}
		return id
	}
}
