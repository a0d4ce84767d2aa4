package controller

import (
	"context"
	"errors"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// turnTime is how long a controller waits at most for those before it, when all have to start programs anew.
	turnTime = 2 * time.Minute
	// wellTime is how long a program that was started anew may take to be well before the next one is.
	wellTime = time.Minute
)

// startAnew ends programs and starts them anew, one after another, when it is this controller's turn. It reports whether ctx is not done then.
func (p *plane) startAnew(ctx context.Context, api *client, programs []program, revision uint64) bool {
	p.awaitTurn(ctx, revision)
	for _, each := range programs {
		if errors.Is(p.group.Check(each.name), process.ErrNotRunning) {
			continue // it will read what is there now
		}
		select {
		case <-p.group.Anew(each.name):
		case <-ctx.Done():
			return false
		}
		bounded, cancel := context.WithTimeout(ctx, wellTime)
		for p.check(bounded, api, each) != nil && sleep(bounded, lookStarting) {
		}
		cancel()
	}
	return ctx.Err() == nil
}

// awaitTurn waits until the controllers of nodes that are before this one have started their programs anew, so that not all API servers are away at the same time. It waits for none that is not well, and for
// none too long.
func (p *plane) awaitTurn(ctx context.Context, revision uint64) {
	bounded, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	_, _ = p.host.Directory().Wait(bounded, func(directory *hostv1.Directory) bool {
		return !othersBefore(directory, p.host.NodeID(), revision)
	})
}

// othersBefore reports whether a controller that is well has yet to work with the trust of a revision, on a node that is before this one.
func othersBefore(directory *hostv1.Directory, nodeID string, revision uint64) bool {
	want := pki.FormatRevision(revision)
	for _, node := range directory.GetNodes() {
		for _, instance := range node.GetRoles() {
			if instance.GetRole() == pki.ControllerRole && node.GetNodeId() < nodeID && node.GetHealthy() &&
				instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY && instance.GetValues()[pki.TrustValue] != want {
				return true
			}
		}
	}
	return false
}
