package roletest

import (
	"context"
	"errors"
	"time"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// errCoreGone ends the watch of a core that gets a successor.
var errCoreGone = errors.New("the core has gone")

// RestartCore simulates the death of the node's core and the start of the next one, which adopts the role: the host sockets and the plugin connection
// go away and come back, and the process is asked which instance it is. It fails the test if that is not the started one. The role should not notice.
// A role that ends with its core ends with the test's process, not here.
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
		p.t.Fatalf("the process does not report that it is the instance %s: %v", p.instance, now)
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

// keepsStore reports whether a role keeps the store in Split, by its manifest.
func (p *Process) keepsStore(ctx context.Context, name string) bool {
	described, err := p.Service().Describe(ctx, &rolev1.DescribeRequest{})
	if err != nil {
		return false // Start will report the problem
	}
	for _, role := range described.GetManifest().GetRoles() {
		if role.GetName() == name {
			return role.GetStartsFromCache() || role.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE
		}
	}
	return false
}
