package roletest

import (
	"context"
	"errors"
	"time"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// errCoreGone ends the watch of a core that is about to have a successor.
var errCoreGone = errors.New("the core has gone")

// RestartCore is to a started role what the death of its node's core is, and the start of the next one, which adopts the role: the host sockets and the plugin connection
// go away, then they are there again, and the process is asked which instance it is. It fails the test if that is not the one that was started. The role should not
// notice. A role that ends with its core does so when the test's process ends, and not here.
func (p *Process) RestartCore() {
	p.t.Helper()
	if p.host == nil {
		p.t.Fatal("RestartCore without a role that runs: call Start first")
	}
	p.host.Stop()
	p.endWatch(errCoreGone)
	<-p.watched
	_ = p.conn.Close()
	if err := p.host.Serve(); err != nil {
		p.t.Fatal(err)
	}
	p.connect()
	p.watch()
	select {
	case <-p.greeted:
	case <-p.watched:
	case <-time.After(patience):
	}
	if now, _ := p.status.Get(); now.GetInstanceId() != p.instance || !closed(p.greeted) {
		p.t.Fatalf("the process does not say that it is the instance %s, which is to be adopted: %v", p.instance, now)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// keepsStore reports whether a role has the store in Split too, by its manifest.
func (p *Process) keepsStore(ctx context.Context, name string) bool {
	described, err := p.Service().Describe(ctx, &rolev1.DescribeRequest{})
	if err != nil {
		return false // Start will say what is wrong
	}
	for _, role := range described.GetManifest().GetRoles() {
		if role.GetName() == name {
			return role.GetStartsFromCache() || role.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE
		}
	}
	return false
}
