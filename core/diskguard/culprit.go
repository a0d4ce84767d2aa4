package diskguard

import (
	"fmt"
)

const (
	// Of what was taken since there was ample room, who is blamed has this part by what was seen to grow, or at least could have it by what it has.
	partGrown, partHad = 4, 2
	// considerable is the part of the volume that a role must have to be blamed where nobody saw how it became full.
	considerable = 10
	// maxReason is how long a reason is at most, in bytes.
	maxReason = 1 << 10
)

// search is for the role that filled the volume.
type search struct {
	// ample is what the volume had when it last had enough, and middle what it had when the roles had what is in before. All but now and uses may be nil.
	ample, middle *room
	now           room
	before, uses  map[string]use
}

// culprit returns the role that filled the volume and how that is said; "" if none of them can be said to have done it. That is whoever grew most while
// room ran out. If room ran out before anybody could look, it is whoever has most, if it has as much as was taken.
func (s search) culprit() (role, why string) {
	k := s.now.scarcer(limitsOf(s.now))
	had := func(name string) int64 { return s.uses[name].has[k] }
	growth := func(name string) int64 {
		if before, known := s.before[name]; known {
			return had(name) - before.has[k]
		}
		return 0
	}
	if s.ample == nil {
		role = s.most(had, s.now.all[k]/considerable)
	} else {
		taken := s.ample.left[k] - s.now.left[k]
		role = s.most(growth, taken/partGrown)
		unseen := s.middle == nil || s.ample.left[k]-s.middle.left[k] > taken/2
		if role == "" && unseen {
			role = s.most(had, taken/partHad)
		}
	}
	if role == "" {
		// Who has more than can be counted hides what it has.
		role = s.most(func(name string) int64 {
			if s.uses[name].whole {
				return 0
			}
			return max(had(name), 1)
		}, 1)
	}
	if role == "" {
		return "", ""
	}
	u := s.uses[role]
	atLeast := ""
	if !u.whole {
		atLeast = "at least "
	}
	what := sizeText(u.has[inBytes])
	if k == inFiles {
		what = fmt.Sprintf("%d files", u.has[inFiles])
	}
	return role, fmt.Sprintf("filled the disk: %s%s in its data directory; it runs again when it has considerably less there, or by: reeve node role restart", atLeast, what)
}

// most returns the role with the highest value, which must be positive and at least so much; of several that have it the first by name.
func (s search) most(value func(role string) int64, atLeast int64) (role string) {
	atLeast = max(atLeast, 1)
	for name := range s.uses {
		if v := value(name); v > atLeast || v == atLeast && (role == "" || name < role) {
			role, atLeast = name, v
		}
	}
	return role
}

func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}
