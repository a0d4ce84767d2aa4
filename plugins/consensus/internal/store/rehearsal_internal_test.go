package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
)

// TestRehearsalIsCompared holds that a snapshot which lacks one key of a user, or has one too many, is not what the store holds.
func TestRehearsalIsCompared(t *testing.T) {
	found := func() *rehearsal.Found {
		return &rehearsal.Found{Keys: 9, Counts: map[string]int64{"ant": 2, "cluster": 5, "idle": 0}, Records: 5}
	}
	compared := &trial{store: &Store{plan: Plan{ClusterUser: "cluster"}}, expected: *found()}
	if err := compared.compare(found()); err != nil {
		t.Error(err)
	}
	for reason, change := range map[string]func(*rehearsal.Found){
		"the user ant has 1 keys in it, and 2 in the store":     func(f *rehearsal.Found) { f.Counts["ant"]-- },
		"the user ant has 0 keys in it, and 2 in the store":     func(f *rehearsal.Found) { delete(f.Counts, "ant") },
		"the user idle has 1 keys in it, and 0 in the store":    func(f *rehearsal.Found) { f.Counts["idle"]++ },
		"the user cluster has 4 keys in it, and 5 in the store": func(f *rehearsal.Found) { f.Counts["cluster"]-- },
		"it has 8 keys, and the store has 9":                    func(f *rehearsal.Found) { f.Keys-- },
		"it has 10 keys, and the store has 9":                   func(f *rehearsal.Found) { f.Keys++ },
		"4 records of the cluster were read of 5":               func(f *rehearsal.Found) { f.Records-- },
		"6 records of the cluster were read of 5":               func(f *rehearsal.Found) { f.Records++ },
	} {
		other := found()
		change(other)
		if err := compared.compare(other); !errors.Is(err, ErrRehearsal) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v; want %q", err, reason)
		}
	}
}
