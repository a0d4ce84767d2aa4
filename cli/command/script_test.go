package command_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/command"
	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/internal/testcluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestMain(m *testing.M) {
	testscript.Main(withoutLeaks{m}, map[string]func(){
		"reeve":  reeve,
		"reeved": func() { os.Exit(fakeReeved(os.Args[1:])) },
		// The suite itself is tested where it is made.
		"reeve-conformance": func() { os.Exit(fakeSuite(os.Args[1:])) },
	})
}

// withoutLeaks fails if a goroutine is left after the tests.
type withoutLeaks struct{ m *testing.M }

func (w withoutLeaks) Run() int {
	stop, err := testcluster.Serve()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := w.m.Run()
	if err := stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = goleak.Find()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // a busy machine is slow to end them
		err = goleak.Find()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// scriptTime is the time of a script: that of the cluster, and as long after it as `fake clock` says.
func scriptTime(clock string) time.Time {
	later, _ := time.ParseDuration(clock)
	return began.Add(90*time.Second + later)
}

// reeve is the program under test, at a time that stands still.
func reeve() {
	if err := endWithTest(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	executable, err := os.Executable()
	if err != nil {
		panic(err)
	}
	os.Exit(int(command.Run(ctx, command.Environment{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdoutIsTerminal: os.Getenv("STDOUT_IS_TERMINAL") != "",
		Interactive:      os.Getenv("INTERACTIVE") != "",
		Now:              func() time.Time { return scriptTime(os.Getenv("CLOCK")) },
		Name:             "reeve", Executable: executable, Version: "1.2.3-test",
		Places:   dev.Places{State: os.Getenv("STATE_PLACE"), Run: os.Getenv("RUN_PLACE")},
		Contexts: contexts.HostDirectory(), Context: os.Getenv("REEVE_CONTEXT"), HostSocket: os.Getenv("HOST_SOCKET"),
	}, os.Args[1:])))
}

// workRoot is a directory that every user can search, with a short path, as those of sockets need it.
func workRoot(t *testing.T) string {
	root, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestScripts(t *testing.T) {
	root := workRoot(t)
	bin := programs(t, root)
	files, err := filepath.Glob(scripts)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	places := 0
	testscript.Run(t, testscript.Params{
		Files:       files,
		WorkdirRoot: root,
		Condition: func(condition string) (bool, error) {
			there := func(file string) bool {
				_, err := os.Stat(file)
				return err == nil
			}
			switch condition {
			case "root":
				return os.Geteuid() == 0, nil
			case "loop":
				return there("/dev/loop-control"), nil
			case "tpm":
				return there("/sys/class/tpm/tpm0"), nil
			case "netns":
				return namespaces(), nil
			}
			return false, fmt.Errorf("there is no condition %s", condition)
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			mu.Lock()
			places++
			place := filepath.Join(root, fmt.Sprint(places))
			mu.Unlock()
			if err := os.Mkdir(place, 0o755); err != nil {
				return err
			}
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			// Without this, a program that the race detector watches sleeps for a second when it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Setenv("STATE_PLACE", filepath.Join(place, "state"))
			env.Setenv("RUN_PLACE", filepath.Join(place, "run"))
			env.Setenv("HOST_SOCKET", filepath.Join(place, "host.sock"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			// Every command is this program, which with the race detector waits for a second before it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			return setup(env, place)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fake": fake, "exits": exits, "killnode": killNode, "await": await, "waitline": waitLine, "until": until, "timesout": timesOut,
			"nonetwork": noNetwork,
		},
	})
}

// The nodes of a script: the IDs come of the keys, which come of the numbers.
const (
	numberA, nodeA = 3674, "reeve-aaaa019b41b997a989124c9c5f73b139"
	numberB, nodeB = 10088, "reeve-aabb6ba16a04318881e02c86924a034e"
	numberX, nodeX = 41180, "reeve-cccceaaaea30ea4277c019d89c6f417f"
	// The newcomer has no ID before the script says that it comes.
	numberNew = 290
)

// clusterID is the ID of the cluster.
const clusterID = "5f0c5f0c5f0c5f0c5f0c5f0c5f0c5f0c"

type clusterKey struct{}

// setup makes a cluster of three nodes, the last of which shows another one's certificate, and the directory of the first one.
func setup(env *testscript.Env, place string) error {
	public, owner, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	request := &clusterv1.BootstrapRequest{
		ClusterId: clusterID, OwnerPublicKey: public, Labels: map[string]string{"zone": "a"}, Plugins: catalog("consensus", "curator", "hostsfile", "lighthouse"),
		Roles: []*clusterv1.RoleAssignment{{Role: "consensus"}, {Role: "curator"}, {Role: "hostsfile"}},
	}
	a, b, x := newNode(numberA), newNode(numberB), newNode(numberX)
	cluster, err := newCluster(request, owner, "", a, b, x)
	if err != nil {
		return err
	}
	env.Defer(func() {
		if err := cluster.end(); err != nil {
			panic(err)
		}
	})
	// Closed before the cluster: nothing of the script runs on, whether it succeeds, fails or is killed.
	lifeline, err := holdPrograms(filepath.Join(place, "lifeline"))
	if err != nil {
		return err
	}
	env.Defer(lifeline.end)
	env.Setenv(lifelineVariable, filepath.Join(place, "lifeline"))
	env.Setenv(testcluster.Variable, os.Getenv(testcluster.Variable))
	env.Values[clusterKey{}] = cluster
	env.Values[workersKey{}] = make(map[string]*worker)
	der, err := x509.MarshalPKCS8PrivateKey(owner)
	if err != nil {
		return err
	}
	dir := filepath.Join(env.WorkDir, "d")
	err = errors.Join(
		cluster.serveNode(a, a), cluster.serveNode(b, b), cluster.serveNode(x, a),
		os.Mkdir(dir, 0o755),
		os.Symlink(place, filepath.Join(dir, "run")),
		os.WriteFile(filepath.Join(dir, "owner.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.pem"), cluster.CAPEM(), 0o644),
		cluster.serveLocal(filepath.Join(place, "node.sock")),
	)
	env.Setenv("CURATOR", cluster.Curator())
	for variable, id := range map[string]string{"NODE_A": nodeA, "NODE_B": nodeB, "NODE_C": nodeX} {
		env.Setenv(variable, id)
	}
	// An archive that takes several messages.
	return errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, "big.tar"), bytes.Repeat([]byte("what an archive is like\n"), 50_000), 0o644))
}
