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
	if !now.Before(earliest()) {
		return nil
	}
	// To the day, so that it is not another text at every try.
	return fmt.Errorf("this machine's clock is wrong, it says %s: the cluster's certificates would end before they are used. Set the clock right; "+
		"the node then goes on by itself", now.UTC().Format(time.DateOnly))
}
