package roles_test

import (
	"context"
	"errors"
	goflag "flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
)

// names of the roles of the property test; each provides the capability x.<name>.
var names = []string{"a", "b", "c", "d"}

// step is something that happens to a node.
type step struct {
	// desired is a new set of desired roles, if change is true.
	change  bool
	desired []choice
	// adjust is a desired role whose configuration changes, and nothing else.
	adjust string
	// crash is a role whose instance is killed, if it runs; fail one that says that it failed; hang one that does not answer any more.
	crash, fail, hang string
	// again is how often that happens to it once more, each time after it had time to come back.
	again int
	// restart is a role that an operator restarts; core says that the core ends and starts again.
	restart string
	core    bool
	// wait is what passes afterwards.
	wait time.Duration
}

// choice is one desired role.
type choice struct {
	name       string
	requires   []string
	generation uint64
	refused    bool
	held       bool
	// version is that of its plugin, and previous the one before; 0: there is none.
	version, previous int
}

func (c choice) role() roles.DesiredRole {
	configuration := "good"
	if c.refused {
		configuration = "bad"
	}
	in := func(version int) roles.DesiredRole {
		return configured(providing(of(role(c.name, c.requires...), fmt.Sprint(version)), "x."+c.name), configuration, c.generation)
	}
	d := in(c.version)
	if c.previous != 0 {
		d = after(d, in(c.previous))
	}
	if c.held {
		d = held(d, "held")
		if d.Previous != nil {
			d.Previous.Hold = d.Hold
		}
	}
	return d
}

func steps(rt *rapid.T) []step {
	choices := rapid.Custom(func(rt *rapid.T) choice {
		c := choice{name: rapid.SampledFrom(names).Draw(rt, "name"), generation: rapid.Uint64Range(1, 2).Draw(rt, "generation")}
		for _, other := range names {
			switch rapid.IntRange(0, 9).Draw(rt, "requires "+other) {
			case 0:
				c.requires = append(c.requires, other)
			case 1:
				c.requires = append(c.requires, "x."+other)
			}
		}
		c.refused = rapid.IntRange(0, 5).Draw(rt, "refused") == 0
		c.held = rapid.IntRange(0, 7).Draw(rt, "held") == 0
		c.version, c.previous = rapid.IntRange(1, 3).Draw(rt, "version"), rapid.IntRange(0, 3).Draw(rt, "previous")
		return c
	})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		s := step{wait: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 150, 1000, 5000}).Draw(rt, "wait")) * time.Millisecond}
		s.again = rapid.IntRange(0, 3).Draw(rt, "again")
		switch rapid.IntRange(0, 9).Draw(rt, "kind") {
		default:
			s.change = true
			s.desired = rapid.SliceOfNDistinct(choices, 0, len(names), func(c choice) string { return c.name }).Draw(rt, "desired")
		case 0, 1, 2:
			s.crash = rapid.SampledFrom(names).Draw(rt, "crash")
		case 3, 4:
			s.fail = rapid.SampledFrom(names).Draw(rt, "fail")
		case 5:
			s.hang = rapid.SampledFrom(names).Draw(rt, "hang")
		case 6:
			s.restart = rapid.SampledFrom(names).Draw(rt, "restart")
		case 7:
			s.core = true
		case 8:
			s.adjust = rapid.SampledFrom(names).Draw(rt, "adjust")
		}
		return s
	}), 8, 40).Draw(rt, "steps")
}

// Whatever is desired, whatever ends or hangs and whatever operators restart: when nothing happens any more, exactly what may run runs, as it was
// last desired, but for what failed more often than its budget allows, and in the version before where the present one did not come to work; and a
// shutdown leaves nothing.
func TestEverythingConverges(t *testing.T) {
	for flag, value := range map[string]string{"checks": fmt.Sprint(checks), "seed": seed} {
		if err := goflag.Set("rapid."+flag, value); err != nil {
			t.Fatal(err)
		}
	}
	var ends ends
	rapid.Check(t, func(rt *rapid.T) { checkSequence(t, rt, &ends) })
	if !testing.Short() && (ends.givenUp < checks/100 || ends.back < checks/100 || ends.kept < checks/100) { // there are about five times as many
		t.Errorf("%+v: the sequences do not do what they should", ends)
	}
	t.Logf("%+v", ends)
}

// ends counts in what state roles ended: given up, gone back to the version before, or with one that stood its trial.
type ends struct{ givenUp, back, kept int }

// allowed is the crash budget of the property test's roles. Its window is longer than a sequence.
const allowed = 2

// patience is how long a role may not answer, asked how often it is asked.
const patience, asked = 20 * time.Second, time.Minute

// probation of the property test's roles ends before one that hangs is found out, or after.
const probation = asked + patience/2

func checkSequence(t *testing.T, rt *rapid.T, ends *ends) {
	f := newFakes()
	f.launchTime = time.Duration(rapid.IntRange(0, 100).Draw(rt, "launch")) * time.Millisecond
	f.readyTime = time.Duration(rapid.IntRange(0, 100).Draw(rt, "ready")) * time.Millisecond
	f.stopTime = time.Duration(rapid.IntRange(0, 100).Draw(rt, "stop")) * time.Millisecond
	f.refuse = func(name, configuration string) error {
		if configuration == "bad" {
			return &plugin.ConfigurationError{Role: name, Problems: []plugin.ConfigurationProblem{{Message: "bad"}}}
		}
		return nil
	}
	settings := []func(*roles.Config){budget(allowed, 1000*time.Hour), func(c *roles.Config) {
		c.Liveness = roles.Liveness{Interval: asked, Timeout: patience}
		c.Probation = probation
	}}
	keeps := rapid.IntRange(0, 9).Draw(rt, "kept") == 0
	if keeps {
		dir, err := os.MkdirTemp("", "failures")
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		settings = append(settings, kept(dir, "boot"))
	}
	all := steps(rt)
	var result error
	synctest.Test(t, func(t *testing.T) {
		x := run(t, f, settings...)
		m := newModel()
		for _, s := range all {
			if s.core && keeps {
				result = errors.Join(result, x.end())
				x = run(t, f, settings...)
				if m.desired != nil {
					x.desire(rolesOf(m.desired)...)
				}
			}
			result = errors.Join(result, x.take(s, m))
			pass(s.wait)
			m.settled(x)
		}
		pass(time.Hour)
		m.settled(x)
		result = errors.Join(result, x.converged(m), x.end())
		for _, gaveUp := range m.gaveUp {
			if gaveUp {
				ends.givenUp++
			}
		}
		for name, c := range m.desired {
			if v := m.versions[name]; v.inForce(c) != c.version {
				ends.back++
			} else if v.good == c.version {
				ends.kept++
			}
		}
	})
	if result != nil {
		rt.Fatal(result)
	}
}

// model counts the failures of roles as they happen to them.
type model struct {
	desired map[string]choice
	counted map[string]int
	print   map[string]string // of what failed
	gaveUp  map[string]bool
	// versions is what the versions of the roles' plugins came to.
	versions map[string]*tried
	problems []error
}

// tried is what is known of the versions of a plugin: the last one that stood its trial, and the last one that did not. past says that the catalog has had
// another one since.
type tried struct {
	good, back int
	past       bool
}

func newModel() *model {
	m := &model{counted: make(map[string]int), print: make(map[string]string), gaveUp: make(map[string]bool), versions: make(map[string]*tried)}
	for _, name := range names {
		m.versions[name] = &tried{}
	}
	return m
}

func (v *tried) inForce(c choice) int {
	if c.hasBefore() && v.back == c.version && !v.past {
		return c.previous
	}
	return c.version
}

func (v *tried) onTrial(c choice) bool {
	return c.hasBefore() && v.inForce(c) == c.version && v.good != c.version && v.back != c.previous
}

func (c choice) hasBefore() bool { return c.previous != 0 && c.previous != c.version }

func (m *model) printOf(name string) string {
	c := m.desired[name]
	return fmt.Sprint(c.requires, c.generation, c.refused, m.versions[name].inForce(c))
}

// look takes note of what time alone does to versions.
func (m *model) look(x *fixture, name string) {
	status, v := x.of(name), m.versions[name]
	c, desired := m.desired[name]
	if status == nil {
		*v = tried{}
	}
	if !desired {
		return
	}
	if v.back != c.version {
		v.past = v.back != 0
	}
	// What is shown of an instance that is being stopped, or launched, may be older.
	if status.GetState() != stopping && status.GetRolledBack().GetVersion() == fmt.Sprint(c.version) && v.inForce(c) == c.version {
		if !c.refused || !v.onTrial(c) {
			m.problems = append(m.problems, fmt.Errorf("role %s went back: %v, %+v, %+v", name, status, c, *v))
		}
		v.back, v.past = c.version, false
	}
	trial := strings.Contains(status.GetReason(), "on trial") || strings.HasPrefix(status.GetReason(), "stops after")
	if v.onTrial(c) && x.runs(name) == fmt.Sprint(c.version) && status.GetState() == ready && !trial {
		if v.good = c.version; v.back == v.good {
			v.back, v.past = 0, false
		}
	}
}

// failed counts a failure of what runs.
func (m *model) failed(name, print string) {
	if m.print[name] != print {
		m.print[name], m.counted[name] = print, 0
	}
	m.counted[name]++
	m.gaveUp[name] = m.counted[name] > allowed
}

func (m *model) reset(name string) { m.counted[name], m.gaveUp[name] = 0, false }

// settled is called when all that is due has happened: roles that are gone are new when they come again, and what was given up is forgotten when
// something else may run.
func (m *model) settled(x *fixture) {
	for _, name := range names {
		m.look(x, name)
		status := x.of(name)
		mayRun := status.GetState() != blocked || strings.HasPrefix(status.GetReason(), "waits for")
		if status == nil || m.gaveUp[name] && mayRun && m.printOf(name) != m.print[name] {
			m.reset(name)
		}
	}
}

// blames reports whether the end of a role's instance would be its own failure.
func (x *fixture) blames(name string) bool {
	status := x.of(name)
	switch status.GetState() {
	case starting, ready, degraded:
		return x.get(name) != nil && !strings.HasPrefix(status.GetReason(), "stops after")
	}
	return false
}

func rolesOf(desired map[string]choice) (all []roles.DesiredRole) {
	for _, name := range names {
		if c, ok := desired[name]; ok {
			all = append(all, c.role())
		}
	}
	return all
}

// hurt does to an instance what the step says.
func (x *fixture) hurt(s step, m *model) {
	name := s.crash + s.fail + s.hang
	if name == "" {
		return
	}
	blamed := x.blames(name)
	if instance := x.get(s.crash); instance != nil {
		instance.crash()
	}
	if instance := x.get(s.fail); instance != nil {
		instance.say(4, "failed")
	}
	if instance := x.get(s.hang); instance != nil {
		instance.feel(errSilent)
		pass(asked + patience)
	}
	c, v := m.desired[name], m.versions[name]
	if s.hang != "" && blamed && v.onTrial(c) && x.of(name).GetRolledBack() == nil {
		// It has stood its trial before it was found out.
		if v.good = c.version; v.back == v.good {
			v.back, v.past = 0, false
		}
	}
	switch {
	case !blamed:
	case v.onTrial(c):
		v.back, v.past = c.version, false
	default:
		m.failed(name, m.printOf(name))
	}
}

func (x *fixture) take(s step, m *model) error {
	if s.change {
		m.desired = make(map[string]choice)
		for _, c := range s.desired {
			m.desired[c.name] = c
		}
		x.desire(rolesOf(m.desired)...)
	}
	if c, ok := m.desired[s.adjust]; ok {
		c.generation = 3 - c.generation
		m.desired[s.adjust] = c
		x.desire(rolesOf(m.desired)...)
	}
	x.hurt(s, m)
	for range s.again {
		if s.crash+s.fail+s.hang != "" {
			pass(time.Second)
			m.settled(x)
			x.hurt(s, m)
		}
	}
	if s.restart == "" {
		return nil
	}
	_, err := x.Restart(context.Background(), s.restart, false)
	if _, desired := m.desired[s.restart]; desired == (err != nil) {
		return fmt.Errorf("role %s is desired: %v, and its restart: %w", s.restart, desired, err)
	}
	if err == nil {
		m.reset(s.restart)
		if v := m.versions[s.restart]; !v.past {
			v.back = 0
		}
	}
	return nil
}

// converged compares what is with what should be, which is worked out in another way than the reconciler does: what cannot run is taken out
// until nothing more can be.
func (x *fixture) converged(m *model) error {
	may := make(map[string]choice)
	for name, c := range m.desired {
		c.refused = c.refused || m.gaveUp[name]
		may[name] = c
	}
	runs := make(map[string]bool)
	for range names {
		for name, c := range may {
			met := !slices.ContainsFunc(c.requires, func(required string) bool {
				return !runs[required[max(0, len(required)-1):]]
			})
			if met && !c.held && !c.refused {
				runs[name] = true
			}
		}
	}
	problems := m.problems
	for _, name := range names {
		status, instance := x.of(name), x.get(name)
		c, desired := may[name]
		switch {
		case (instance != nil) != (status.GetState() == ready):
			problems = append(problems, fmt.Errorf("role %s is shown as %s, and an instance runs: %v", name, status.GetState(), instance != nil))
		case (status != nil) != desired:
			problems = append(problems, fmt.Errorf("role %s is desired: %v, and shown: %v", name, desired, status != nil))
		case desired && instance != nil && status.GetConfigurationGeneration() != c.generation:
			problems = append(problems, fmt.Errorf("role %s runs with an old configuration", name))
		case desired && instance != nil && instance.version != fmt.Sprint(m.versions[name].inForce(c)):
			problems = append(problems, fmt.Errorf("role %s runs version %s: %+v, %+v", name, instance.version, c, *m.versions[name]))
		case desired && (status.GetRolledBack() != nil) != (m.versions[name].inForce(c) != c.version):
			problems = append(problems, fmt.Errorf("role %s has gone back: %v, %+v, %+v", name, status.GetRolledBack(), c, *m.versions[name]))
		case runs[name] && instance == nil:
			problems = append(problems, fmt.Errorf("role %s may run, and is %s (%s)", name, status.GetState(), status.GetReason()))
		case !runs[name] && instance != nil && !x.outlives(name, may, runs):
			problems = append(problems, fmt.Errorf("role %s may not run, and does", name))
		case desired && status.GetState() == failed && m.gaveUp[name] != strings.Contains(status.GetReason(), "reeve node role restart"):
			problems = append(problems, fmt.Errorf("role %s was given up: %v, and is %s", name, m.gaveUp[name], status.GetReason()))
		case desired && m.gaveUp[name] && int(status.GetLastFailure().GetFailures()) != m.counted[name]:
			problems = append(problems, fmt.Errorf("role %s failed %d times, and says %v", name, m.counted[name], status.GetLastFailure()))
		case desired && status.GetState() != ready && status.GetReason() == "":
			problems = append(problems, fmt.Errorf("role %s is %s without a reason", name, status.GetState()))
		}
	}
	return errors.Join(problems...)
}

// outlives says whether a role runs because what it requires ran when it was started, and has since only failed: such a role runs on.
func (x *fixture) outlives(name string, may map[string]choice, runs map[string]bool) bool {
	c := may[name]
	if c.held || c.refused {
		return false
	}
	for _, required := range c.requires {
		provider, ok := may[required[len(required)-1:]]
		if !ok || provider.held {
			return false
		}
		if !runs[provider.name] && !provider.refused && !x.outlives(provider.name, may, runs) {
			return false
		}
	}
	return true
}
