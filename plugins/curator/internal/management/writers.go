package management

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// writtenAtOnce is how many bytes of records an operator may have written at once, and writePace how many a second after that. The record of a node may have 768 KiB, each change of one of its labels
	// writes all of it, and the store does not bound what a curator writes. With twenty roles that have a configuration of 1 KiB each it is 20 KiB.
	writtenAtOnce = 4 << 20
	writePace     = 256 << 10
)

// writers are the operators that have changed something since the curator started. The owner, who may do everything, is none: what only the owner may do can change all nodes at once.
type writers struct {
	mu sync.Mutex
	of map[string]*writer // by name
}

// writer is one of them.
type writer struct{ pace *rate.Limiter }

// begin waits until what a caller has written before is paid for. The change lasts until end is called, and the next one of the caller begins after that: what it writes is known then. nil: nothing is counted.
func (w *writers) begin(ctx context.Context, caller auth.Caller) (*writer, error) {
	if caller.Kind != clusterv1.Caller_CALLER_OPERATOR {
		return nil, nil
	}
	own := w.at(caller.Person.Operator)
	if own.pace.Tokens() >= 0 || own.pace.WaitN(ctx, 1) == nil {
		return own, nil
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, answer.Errorf(codes.ResourceExhausted, "%s changes more than the store takes from one operator, which is %d MiB at once and then %d KiB a second, by the size of the records that are "+
		"changed: wait some seconds, and make fewer changes", caller, writtenAtOnce>>20, writePace>>10)
}

func (w *writers) at(operator string) *writer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = make(map[string]*writer)
	}
	if w.of[operator] == nil {
		w.of[operator] = &writer{rate.NewLimiter(writePace, writtenAtOnce)}
	}
	return w.of[operator]
}

// end has the writer owe what was written. A change that was tried again, since another one was faster, is owed once.
func (w *writer) end(change *store.Change) {
	if w != nil && change != nil {
		w.pace.ReserveN(time.Now(), min(change.Written, writtenAtOnce))
	}
}
