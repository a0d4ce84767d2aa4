package e2e

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
)

// failpoints is the core that can be stopped at every step, built when the first test needs it.
var failpoints struct {
	once    sync.Once
	program string
	err     error
}

func buildFailpoints(t *testing.T) string {
	t.Helper()
	failpoints.once.Do(func() { failpoints.program, failpoints.err = suite.programs.Failpoints(t.Context()) })
	if failpoints.err != nil {
		t.Fatal(failpoints.err)
	}
	return failpoints.program
}

// declaredSteps are the steps that have a name, as the source of the core declares them.
func declaredSteps(t *testing.T) []string {
	t.Helper()
	source := filepath.Join(suite.programs.Workspace, "core", "checkpoint", "checkpoint.go")
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	ast.Inspect(file, func(node ast.Node) bool {
		value, ok := node.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			return true
		}
		if kind, ok := value.Type.(*ast.Ident); ok && kind.Name == "Step" {
			name, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, name)
		}
		return true
	})
	if len(steps) < 10 {
		t.Fatalf("%s declares only these steps: %v", source, steps)
	}
	return steps
}

// point is a step that is taken for the n-th time.
type point struct {
	step string
	n    int
}

func (p point) String() string { return p.step + ":" + strconv.Itoa(p.n) }

// variable is what has the core end itself at the point.
func (p point) variable() string { return "REEVE_FAILPOINT=" + p.String() }

// stepsOf are the steps in a log of them.
func stepsOf(t *testing.T, log string) []string {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(content))
}

// parts of a step that belongs to a file or to a kind of volume: what it is ("write", "written", "volume"), and of what. own says that it is neither, but has a
// name of its own.
func parts(step string) (kind, of string, own bool) {
	kind, of, found := strings.Cut(step, ":")
	return kind, of, !found
}

// system are the files of the node itself: those in system/, and the one in run/ that says that it was sealed.
var system = []string{"configuration.json", "volume-key.json", "recovery.age", "recovery.age.sha256", "cuk.json", "consumed.json", "sealed"}

// points are the points on a way on which these steps were taken, from one of them on. Of the files that the running node writes as often as it likes, the first
// time on a way is enough; those that have the number of an instance in their names are others each time, but on the first way.
func points(steps []string, from int, first bool) []point {
	counts, seen := make(map[string]int), make(map[string]bool)
	var all []point
	for n, step := range steps {
		counts[step]++
		kind, of, own := parts(step)
		again := own || kind == "volume" || slices.Contains(system, of)
		if numbered := len(strings.Split(of, ".")) == 3 && !again; numbered && !first {
			continue
		}
		if n >= from && (again || !seen[step]) {
			all = append(all, point{step, counts[step]})
			seen[step] = true
		}
	}
	return all
}

// way is something that a node is brought to do.
type way struct {
	name string
	// prepare changes the machine before the core is started.
	prepare func(*testing.T, *softtpm.TPM)
	// begin takes the node, whose core was just started, to where the way begins; nil: that is the start of the core.
	begin func(*testing.T, *devcluster.Cluster)
	// do is the command that does it; nil: the node comes up by itself.
	do func(*devcluster.Cluster) []string
	// system says that only the files of the node itself are points of this way: the running node writes others meanwhile, or does not.
	system bool
}

// ways are all but the first start. The gate goes none of them.
func ways() []way {
	if !soak.Enabled {
		return nil
	}
	up := func(t *testing.T, c *devcluster.Cluster) { c.AwaitUp(t, patience, fewRoles...) }
	command := func(arguments ...string) func(*devcluster.Cluster) []string {
		return func(*devcluster.Cluster) []string { return arguments }
	}
	unlock := func(c *devcluster.Cluster) []string {
		return []string{"node", "unlock", "--wait=false", "--recovery-key", c.RecoveryKey()}
	}
	return []way{
		{name: "restart"},
		{name: "rotate", begin: up, do: command("node", "keys", "rotate", "--nuk", "--cuk"), system: true},
		{name: "reseal", begin: up, do: command("node", "reseal"), system: true},
		{name: "seal", begin: up, do: command("node", "seal", "--yes"), system: true},
		{name: "unlock", begin: func(t *testing.T, c *devcluster.Cluster) {
			up(t, c)
			c.MustReeve(t, "node", "seal", "--yes")
		}, do: unlock, system: true},
		{
			name: "recover", prepare: func(t *testing.T, tpm *softtpm.TPM) { tpm.Replace(t) },
			begin: func(t *testing.T, c *devcluster.Cluster) { awaitLocked(t, c, "another TPM") }, do: unlock, system: true,
		},
	}
}

// ofNode says whether a point is one of the running node's own files, which it writes now and then.
func ofNode(p point) bool {
	kind, of, own := parts(p.step)
	return !own && kind != "volume" && !slices.Contains(system, of)
}

// record takes a node through its life, and returns the steps of each way, and the points at which it is to be stopped there.
func record(t *testing.T) (steps map[string][]string, all map[string][]point) {
	t.Helper()
	tpm := softtpm.Start(t, suite.base)
	c := newSealed(t, few, by(tpm))
	steps, all = make(map[string][]string), make(map[string][]point)
	for _, w := range append([]way{{name: "bootstrap"}}, ways()...) {
		log, from := filepath.Join(c.Home, "steps-"+w.name), 0
		if w.prepare != nil {
			w.prepare(t, tpm)
		}
		c.StartCore(t, buildFailpoints(t), "REEVE_FAILPOINT_LOG="+log)
		if w.begin != nil {
			w.begin(t, c)
			from = len(stepsOf(t, log))
		}
		if w.do != nil {
			c.MustReeve(t, w.do(c)...)
		}
		if w.name != "seal" {
			c.AwaitUp(t, patience, fewRoles...)
		}
		steps[w.name] = stepsOf(t, log)
		all[w.name] = points(steps[w.name], from, w.name == "bootstrap")
		if w.system {
			all[w.name] = slices.DeleteFunc(all[w.name], ofNode)
		}
		stopCore(t, c)
		if w.name == "seal" {
			// What was sealed stays so until the machine is started again.
			c.PowerOff(t)
		}
	}
	return steps, all
}

// TestSteps kills the core at every step on its way: of its first start, of a later one, and of all that is done to its keys. It goes on where it was, and is the
// node that it was. The gate kills it at a handful of steps of its first start only. The steps are those that a node takes that goes the way once; one that is declared and not among them fails the test, and so does one that is
// taken and not declared.
func TestSteps(t *testing.T) {
	t.Parallel()
	taken, at := record(t)
	declared := declaredSteps(t)
	met := make(map[string]bool)
	for way, steps := range taken {
		t.Logf("%s: %d steps, %d points: %v", way, len(steps), len(at[way]), at[way])
		for _, step := range steps {
			met[step] = true
			kind, of, own := parts(step)
			if own && !slices.Contains(declared, step) || !own && (of == "" || !slices.Contains([]string{"write", "written", "volume"}, kind)) {
				t.Errorf("%s: the step %s is taken and not declared in core/checkpoint", way, step)
			}
		}
	}
	for _, step := range declared {
		if !met[step] && soak.Enabled {
			t.Errorf("the step %s is declared, and taken on no way that this test goes", step)
		}
	}
	begin := slices.DeleteFunc(slices.Clone(at["bootstrap"]), ofNode)
	if !soak.Enabled {
		var handful []point
		for n := 0; n < len(begin); n += max(1, len(begin)/5) {
			handful = append(handful, begin[n])
		}
		killedOnFirstStart(t, handful, true)
		return
	}
	for name, machine := range inOrder(map[string]bool{"bootstrap": false, "bootstrap, with the machine": true}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedOnFirstStart(t, begin, machine)
		})
	}
	// A node that was stopped at a file of its own may not come to the next one again, so each has one to itself.
	for n, at := range slices.DeleteFunc(slices.Clone(at["bootstrap"]), func(p point) bool { return !ofNode(p) }) {
		t.Run("bootstrap, "+at.String(), func(t *testing.T) {
			t.Parallel()
			killedOnFirstStart(t, []point{at}, n%2 == 0)
		})
	}
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			killedLater(t, w, at[w.name])
		})
	}
}

// openFields is what the sealed configuration says for everybody.
func openFields(t *testing.T, c *devcluster.Cluster) (fields struct {
	ClusterID string `json:"cluster_id"`
	NodeID    string `json:"node_id"`
	Phase     string `json:"phase"`
}) {
	t.Helper()
	content, err := os.ReadFile(c.Path("system", "configuration.json"))
	if os.IsNotExist(err) {
		return fields
	}
	document := struct {
		Content struct {
			Open any `json:"open"`
		} `json:"content"`
	}{}
	document.Content.Open = &fields
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		t.Fatalf("the sealed configuration, which is replaced as a whole, is torn: %v\n%s", err, content)
	}
	return fields
}

// killedOnFirstStart makes one node whose core ends at each point of its first start, alone or with its machine: each start comes to the next point, since it goes
// on where the one before was stopped, and no further.
func killedOnFirstStart(t *testing.T, at []point, machine bool) {
	tpm := softtpm.Start(t, suite.base)
	c := newSealed(t, few, by(tpm))
	begun, image, reached := openFields(t, c), "", 0
	for _, at := range at {
		at.n = 1
		if reachedUp(t, c, c.StartCore(t, buildFailpoints(t), at.variable())) {
			t.Fatalf("the node is up, and has not come to %s", at)
		}
		reached++
		now, is := openFields(t, c), fileSystem(t, c)
		if begun.ClusterID != "" && (now.ClusterID != begun.ClusterID || now.NodeID != begun.NodeID) {
			t.Fatalf("killed at %s: it is node %+v, and was %+v", at, now, begun)
		}
		if image != "" && is != image {
			t.Fatalf("killed at %s: the volume was formatted twice", at)
		}
		begun, image = now, is
		if machine {
			c.PowerOff(t)
			tpm.Restart(t)
		}
	}
	t.Logf("killed at %d of %d points", reached, len(at))
	after := startUp(t, c, fewRoles...)
	if after.Cluster.ID != begun.ClusterID || after.Node.ID != begun.NodeID || fileSystem(t, c) != image {
		t.Errorf("begun as %+v on %s, and it is %s on %s", begun, image, after, fileSystem(t, c))
	}
	onlyThese(t, c, after)
	// It is whole: its owner could open it, and it starts unattended.
	recovered(t, c, c.RecoveryKey())
	if s := after.Storage; !s.Recoverable || len(s.Weaknesses) != 0 {
		t.Errorf("the storage after it was killed: %+v", s)
	}
	stopCore(t, c)
	sameNode(t, after, startUp(t, c, fewRoles...))
}

// reachedUp waits until the core was killed, or its node is up, and says whether it is.
func reachedUp(t *testing.T, c *devcluster.Cluster, core *devcluster.Running) (up bool) {
	t.Helper()
	eventually.True(t, 2*patience, "the core killed, or the node up", func() (bool, string) {
		select {
		case <-core.Done():
			if result := core.Wait(t, patience); result.Code != -1 {
				t.Fatalf("the core was not killed, and ended: %s\n%s", result, c.Log(t))
			}
			return true, ""
		default:
		}
		result := c.Reeve(t, "status", "-o", "json")
		status, err := devcluster.ParseStatus(result.Stdout)
		up = err == nil && result.Code == 0 && status.Up(fewRoles...)
		return up, result.String()
	})
	return up
}

// killedLater has the core of one node end at each point on a way, alone or with its machine.
func killedLater(t *testing.T, w way, at []point) {
	tpm := softtpm.Start(t, suite.base)
	c := newSealed(t, few, by(tpm))
	first := startUp(t, c, fewRoles...)
	addWriter(t, c, first.Node.ID)
	write(t, c.AwaitUp(t, patience, withWriter...).Role("writer"), "first", "value")
	stopCore(t, c)
	image := fileSystem(t, c)
	for n, at := range at {
		if w.prepare != nil {
			w.prepare(t, tpm)
		}
		killed := c.StartCore(t, buildFailpoints(t), at.variable())
		if w.begin != nil {
			w.begin(t, c)
		}
		var doing *devcluster.Running
		if w.do != nil {
			doing = c.Start(t, w.do(c)...)
		}
		select {
		case <-killed.Done():
		case <-time.After(patience):
			if doing != nil {
				said, complained := doing.Output()
				t.Logf("what was to bring it there has said:\n%s%s", said, complained)
			}
			t.Fatalf("the core has not come to the step %s within %s", at, patience)
		}
		if result := killed.Wait(t, patience); result.Code != -1 {
			t.Fatalf("the core ended otherwise than at the step %s: %s", at, result)
		}
		if doing != nil {
			// Nobody starts the core while it waits for that. It may be at its end by itself.
			_ = syscall.Kill(-doing.PID, syscall.SIGINT)
			doing.Wait(t, patience)
		}
		machine := n%2 == 0
		if machine {
			c.PowerOff(t)
		}
		upOrOpened(t, w, c, at, withWriter)
		after := c.AwaitUp(t, patience, withWriter...)
		sameNode(t, first, after)
		holds(t, after.Role("writer"), "first", "value")
		if fileSystem(t, c) != image {
			t.Errorf("killed at %s, and the volume was formatted again", at)
		}
		recovered(t, c, c.RecoveryKey())
		stopCore(t, c)
		if !machine {
			// A core that found the volume open had no key to finish with what was interrupted: the next one has, and must not meet the next point by that.
			upOrOpened(t, w, c, at, fewRoles)
			stopCore(t, c)
		}
	}
}

// upOrOpened starts the core of a node that was stopped at a point. Where it waits for its owner, its volume is closed, and he opens it. It does so exactly when somebody
// wished that it stays sealed, or when it was recovered since its TPM is another: that one has the keys again only once the cluster's policy was heard.
func upOrOpened(t *testing.T, w way, c *devcluster.Cluster, at point, roles []string) {
	t.Helper()
	wished, waits := c.WishesSealed(t), false
	state := "Locked"
	if wished {
		state = "Sealed"
	}
	c.StartCore(t, "")
	c.Await(t, patience, "the node up, or waiting for its owner, after it was killed at "+at.String(), func(s devcluster.Status) bool {
		waits = s.Storage.State == state && s.Storage.Problem != "" && s.Storage.Source("recovery").State == "Waiting"
		return waits || s.Up(roles...)
	})
	if waits != wished && w.name != "recover" {
		t.Errorf("killed at %s, with the wish that it stays sealed (%t): %s", at, wished, c.Status(t))
	}
	if waits {
		isClosed(t, c)
		mustUnlock(t, c)
	}
}
