package histories_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/partition"
)

// TestHistories makes histories under faults that need no privilege.
func TestHistories(t *testing.T) {
	faults := kills()
	few := len(faults)
	if os.Geteuid() == 0 {
		// Root has the others in namespaces.
		few = 1
	}
	runs := wanted(t, few)
	s := newScene(t, shared.OrdinaryCluster(t), runs)
	histories(t, s, faults, runs)
	s.cluster.Down(t)
}

// TestHistoriesInNamespaces makes histories under all faults, those of the network among them.
func TestHistoriesInNamespaces(t *testing.T) {
	partition.Require(t)
	killing, cutting := kills(), cuts()
	var faults []fault
	for i, cut := range cutting {
		// In turns, so that a role that is killed has time to be well in between.
		faults = append(faults, cut)
		if i < len(killing) {
			faults = append(faults, killing[i])
		}
	}
	runs := wanted(t, len(faults))
	s := newScene(t, shared.Cluster(t), runs, "--netns")
	s.network = partition.New(t, s.cluster)
	histories(t, s, faults, runs)
	s.cluster.Down(t)
}

// wanted is how many runs a test makes: as many as the environment says, or otherwise a few.
func wanted(t *testing.T, otherwise int) int {
	t.Helper()
	return int(number(t, "REEVE_HISTORIES", uint64(otherwise)))
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return number
}

// histories makes so many runs, with one fault after another.
func histories(t *testing.T, s *scene, faults []fault, runs int) {
	t.Helper()
	seed := number(t, "REEVE_HISTORIES_SEED", rand.Uint64())
	t.Logf("the seed is %d (REEVE_HISTORIES_SEED)", seed)
	results := newTally()
	defer results.show(t)
	for number := range runs {
		fault := faults[number%len(faults)]
		r := s.run(t, number+1, fault, seed)
		results.add(fault.name, r)
		for _, finding := range r.findings {
			t.Errorf("run %d, %s: %s: %s", number+1, fault.name, finding.Verdict, finding.Problem)
		}
	}
}
