package roles_test

import (
	"errors"
	"fmt"
	"slices"
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
	// crash is a role whose instance is killed, if it runs; fail one that says that it failed.
	crash, fail string
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
}

func (c choice) role() roles.DesiredRole {
	configuration := "good"
	if c.refused {
		configuration = "bad"
	}
	d := configured(providing(role(c.name, c.requires...), "x."+c.name), configuration, c.generation)
	if c.held {
		d = held(d, "held")
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
		c.refused = rapid.IntRange(0, 3).Draw(rt, "refused") == 0
		c.held = rapid.IntRange(0, 7).Draw(rt, "held") == 0
		return c
	})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		s := step{wait: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 150, 1000, 5000}).Draw(rt, "wait")) * time.Millisecond}
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0, 1:
			s.change = true
			s.desired = rapid.SliceOfNDistinct(choices, 0, len(names), func(c choice) string { return c.name }).Draw(rt, "desired")
		case 2:
			s.crash = rapid.SampledFrom(names).Draw(rt, "crash")
		case 3:
			s.fail = rapid.SampledFrom(names).Draw(rt, "fail")
		}
		return s
	}), 1, 25).Draw(rt, "steps")
}

// Whatever is desired and whatever ends: when nothing happens any more, exactly what may run runs, as it was last desired, and a shutdown leaves
// nothing.
func TestEverythingConverges(t *testing.T) {
	for range 20 { // each is a hundred sequences
		rapid.Check(t, func(rt *rapid.T) { checkSequence(t, rt) })
	}
}

func checkSequence(t *testing.T, rt *rapid.T) {
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
	all := steps(rt)
	var result error
	synctest.Test(t, func(t *testing.T) {
		x := run(t, f)
		var last []choice
		for _, s := range all {
			x.take(s)
			if s.change {
				last = s.desired
			}
			pass(s.wait)
		}
		pass(time.Hour)
		result = errors.Join(x.converged(last), x.end())
	})
	if result != nil {
		rt.Fatal(result)
	}
}

func (x *fixture) take(s step) {
	if s.change {
		var desired []roles.DesiredRole
		for _, c := range s.desired {
			desired = append(desired, c.role())
		}
		x.desire(desired...)
	}
	if instance := x.get(s.crash); instance != nil {
		instance.crash()
	}
	if instance := x.get(s.fail); instance != nil {
		instance.say(4, "failed")
	}
}

// converged compares what is with what should be, which is worked out in another way than the reconciler does: what cannot run is taken out
// until nothing more can be.
func (x *fixture) converged(last []choice) error {
	may := make(map[string]choice)
	for _, c := range last {
		may[c.name] = c
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
	var problems []error
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
		case runs[name] && instance == nil:
			problems = append(problems, fmt.Errorf("role %s may run, and is %s (%s)", name, status.GetState(), status.GetReason()))
		case !runs[name] && instance != nil && !x.outlives(name, may, runs):
			problems = append(problems, fmt.Errorf("role %s may not run, and does", name))
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
