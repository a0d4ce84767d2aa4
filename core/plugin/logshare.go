package plugin

import "time"

const (
	// sharePeriod and shareSize are how much of what an instance writes goes into the core's log, in bytes: 512 KiB a minute hold the start of a
	// verbose role with ease, and 64 roles that write for ever cannot drown what the core itself has to say.
	sharePeriod = time.Minute
	shareSize   = 512 << 10
	// lineCost is what the core adds to a line: the time, the names of role and instance.
	lineCost = 256
)

// share is what an instance may still put into the core's log. Once it is used up nothing is taken before the next period, so that what is there
// has no holes but one.
type share struct {
	began time.Time
	used  int
	left
}

// left is what has not come into the core's log.
type left struct {
	// lines were read and left out.
	lines int
	// skipped is how many bytes were not even read.
	skipped int64
}

// take reports whether a line of some bytes is to be forwarded.
func (s *share) take(now time.Time, size int) bool {
	if !s.spent() && now.Sub(s.began) >= sharePeriod {
		s.began, s.used = now, 0
	}
	if s.spent() || s.used+size+lineCost > shareSize {
		s.lines++
		return false
	}
	s.used += size + lineCost
	return true
}

// spent reports whether nothing is taken any more in this period.
func (s *share) spent() bool { return s.lines > 0 || s.skipped > 0 }

// until is when there is something to settle; zero: there is nothing.
func (s *share) until() time.Time {
	if s.left == (left{}) {
		return time.Time{}
	}
	return s.began.Add(sharePeriod)
}

// settle returns what was left out, if anything was and its period is over or nothing more will come, and begins the next period.
func (s *share) settle(now time.Time, last bool) (left, bool) {
	if s.left == (left{}) || !last && now.Before(s.until()) {
		return left{}, false
	}
	out := s.left
	*s = share{began: now}
	return out, true
}
