package target

import "time"

// A busy machine may take longer to renew a session than a call would wait for that.
func init() { renewWithin = time.Minute }
