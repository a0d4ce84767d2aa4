package target

import (
	"context"
	"time"
)

// A busy machine may take longer to renew a session than a call would wait for that.
func init() { renewWithin = time.Minute }

// CutOff is cutOff for tests.
func (t *Target) CutOff(ctx context.Context, failed bool) error { return t.cutOff(ctx, failed) }
