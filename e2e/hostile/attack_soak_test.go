//go:build soak

package hostile

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
)

// secondsVariable is for how long each attack goes on.
const secondsVariable = "HOSTILE_SECONDS"

// TestStoreUnderAttack has each node of a cluster of one, and of one of three, attack the store that they share, at the same time, and ends a member in the middle with
// SIGKILL. No write of the others waits for more than a second before that, the member is back within ten, and it has no more than 2 GiB of memory: on a machine with nothing else to do. What is written
// while the only member is away takes as long as that, and that is told only.
func TestStoreUnderAttack(t *testing.T) {
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv(secondsVariable), "600"))
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := roleplugin.Build(t.Context(), suite.programs.Workspace, suite.base, "hostile", map[string]string{"granted": "/nowhere", "boxed": "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"one": 1, "three": 3} {
		t.Run(name, func(t *testing.T) { attackStoreOf(t, size, plugin, seconds) })
	}
}

const (
	mostWait = time.Second
	mostAway = 10 * time.Second
)

func attackStoreOf(t *testing.T, size int, plugin string, seconds int) {
	c := devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: suite.base})
	c.MustReeve(t, "dev", "up", "--nodes", strconv.Itoa(size), "--detach")
	var all []*attacked
	for number := range size {
		n := &attacked{scene{cluster: c, directory: c.NodeDirectory(number + 1), ctx: beforeDeadline(t)}}
		n.node = n.look(t).Node.ID
		if result := c.StartAlone(t, "plugin", "add", plugin, "--approve", "--dir", n.directory).Wait(t, patience); result.Code != 0 {
			t.Fatal(result)
		}
		for _, role := range attackers() {
			c.MustReeve(t, "node", "role", "add", n.node, role, "--wait=none")
		}
		all = append(all, n)
	}
	for _, n := range all {
		n.ready(t, append(attackers(), "consensus")...)
	}
	for turn, row := range useRows {
		if chosen(row) {
			t.Run(row.ID, func(t *testing.T) { attack(t, all, all[turn%len(all)], row, seconds) })
		}
	}
}

// attackers are the roles of all rows, and their victim.
func attackers() []string {
	roles := []string{"victim"}
	for _, row := range useRows {
		if !slices.Contains(roles, row.Role) {
			roles = append(roles, row.Role)
		}
	}
	return roles
}

// attacked is a node whose store is attacked.
type attacked struct{ scene }

// look is the node's status, asked at the node.
func (n *attacked) look(t *testing.T) devcluster.Status {
	t.Helper()
	result := n.cluster.StartAlone(t, "status", "-o", "json", "--dir", n.directory).Wait(t, patience)
	status, err := devcluster.ParseStatus(result.Stdout)
	if err != nil {
		t.Log(result)
	}
	n.status = status
	return status
}

func (n *attacked) ready(t *testing.T, roles ...string) {
	t.Helper()
	eventually.True(t, patience, "Ready: "+strings.Join(roles, ", "), func() (bool, string) {
		status := n.look(t)
		for _, role := range roles {
			if status.Role(role).State != "Ready" {
				return false, status.String()
			}
		}
		return true, ""
	})
}

// state asks the node's victim how its writes went since it was asked last.
func (n *attacked) state(t *testing.T) (acknowledged, refusals int, slowest time.Duration, broken string) {
	t.Helper()
	got, err := n.order(t, "victim", "victim.state", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged, _ = strconv.Atoi(got.Values["acknowledged"])
	refusals, _ = strconv.Atoi(got.Values["refusals"])
	if slowest, err = time.ParseDuration(got.Values["slowest"]); err != nil {
		t.Fatal(err)
	}
	return acknowledged, refusals, slowest, got.Values["broken"]
}

// attack performs a row on all nodes. The second half of it begins with the end of a member.
func attack(t *testing.T, all []*attacked, killed *attacked, row Row, seconds int) {
	began := make([]int, len(all))
	for n, one := range all {
		one.ready(t, "victim", row.Role, "consensus")
		// What has waited for a member that was ended before is no fault of this attack.
		first, _, _, _ := one.state(t)
		eventually.True(t, patience, "a write of the victim is acknowledged", func() (bool, string) {
			acknowledged, refused, _, broken := one.state(t)
			began[n] = refused
			return acknowledged > first, broken
		})
	}
	var attacking sync.WaitGroup
	for _, one := range all {
		name, err := one.place(row.Role, row.ID, map[string]string{"seconds": strconv.Itoa(seconds), "timeout": strconv.Itoa(seconds + 60)})
		if err != nil {
			t.Fatal(err)
		}
		attacking.Go(func() {
			got, err := one.await(row.Role, name, one.pidOf(row.Role), time.Duration(seconds)*time.Second+attemptTimeout)
			if err != nil || got.Values["works"] != "yes" {
				t.Errorf("the attack on %s was not made: %v %v", one.node, err, got.Values)
			}
			for _, try := range got.Tries {
				switch {
				case try.Through && one == killed: // a store that was started meanwhile has counted nothing of before
					t.Logf("on %s, whose store was started meanwhile: %s", one.node, try.What)
				case try.Through:
					t.Errorf("on %s got through: %s", one.node, try.What)
				}
			}
		})
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		attacking.Wait()
	}()
	select { // half of the time of the attack
	case <-waited:
	case <-time.After(time.Duration(seconds) * time.Second / 2):
	}
	var told []string
	before := make([]int, len(all))
	for n, one := range all {
		acknowledged, refused, slowest, broken := one.state(t)
		before[n] = acknowledged
		told = append(told, fmt.Sprintf("node %d: %d writes failed (%s), the slowest took %s", n+1, refused-began[n], broken, slowest))
		if refused != began[n] && strings.HasPrefix(broken, "ResourceExhausted") {
			t.Errorf("on node %d writes of the victim were refused: %s", n+1, broken)
		}
		if slowest > mostWait {
			t.Errorf("on node %d a write of the victim waited for %s", n+1, slowest)
		}
	}
	remember := func(n int, one *attacked) {
		most := held(t, one.look(t).Role("consensus").PID, "VmHWM:")
		told = append(told, fmt.Sprintf("node %d: %d MiB of memory", n+1, most>>10))
		if most > mostOfStore {
			t.Errorf("the store of node %d had %d MiB of memory", n+1, most>>10)
		}
	}
	for n, one := range all {
		remember(n, one)
	}
	old := killed.look(t).Role("consensus")
	killed.cluster.Kill(t, old.PID)
	away := time.Now()
	eventually.True(t, patience, "the member is back", func() (bool, string) {
		now := killed.look(t).Role("consensus")
		return now.State == "Ready" && now.InstanceID != old.InstanceID, now.State + ": " + now.Reason
	})
	if took := time.Since(away).Round(100 * time.Millisecond); took > mostAway {
		t.Errorf("the member was back after %s", took)
	} else {
		told = append(told, fmt.Sprintf("the member was back after %s", took))
	}
	<-waited
	for n, one := range all {
		acknowledged, refused, slowest, broken := one.state(t)
		told = append(told, fmt.Sprintf("node %d with its end: %d writes failed (%s), the slowest took %s", n+1, refused-began[n], broken, slowest))
		if acknowledged <= before[n] {
			t.Errorf("on node %d no write of the victim was acknowledged after a member had ended", n+1)
		}
		remember(n, one)
	}
	t.Logf("%s:\n\t%s", row.ID, strings.Join(told, "\n\t"))
}
