package membership

import (
	"fmt"
	"time"
)

// earliest is before anything of Reeve: a machine whose clock says that it is sooner has lost the time, or never had it. It is a function since Go has no
// constant times.
func earliest() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

// clockError says that no cluster can be made by this machine's clock. The certificates of one that is made in 1970 would have ended before anybody could
// set the clock right.
func clockError(now time.Time) error {
	if !wrong(now) {
		return nil
	}
	return fmt.Errorf("%s: the cluster's certificates would end before they are used. Set the clock right; the node then goes on by itself", clockSays(now))
}

// CheckClock says that no cluster can be restored by this machine's clock. It is asked before anything is made: when a store was begun again is told by that clock, too, and cannot be changed later.
func CheckClock(now time.Time) error {
	if !wrong(now) {
		return nil
	}
	return fmt.Errorf("%s: set the clock right, and run `reeved restore` again", clockSays(now))
}

func wrong(now time.Time) bool { return now.Before(earliest()) }

// clockSays is how a wrong clock is said: to the day, so that it is not another text at every try.
func clockSays(now time.Time) string {
	return fmt.Sprintf("this machine's clock is wrong, it says %s", now.UTC().Format(time.DateOnly))
}
