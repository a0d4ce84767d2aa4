package command_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/cli/internal/testcluster"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// exits runs reeve and expects an exit code: exits CODE ARGUMENT...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGUMENT...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// fake changes the cluster.
//
//	fake outcome ROLE STATE[/PID][:REASON]...   what becomes of a role when it is assigned
//	fake report ROLE STATE                what the first node says of a role
//	fake membership STATE REASON
//	fake curator stop|start
//	fake clock DURATION                   the time of the cluster and of reeve, after the usual one
//	fake calls COUNT                      the owner calls so often
//	fake event SEVERITY TYPE ROLE MESSAGE something happens on the nodes; the role may be -
//	fake log ROLE LINE                    a role writes a line
//	fake log-emptied ROLE                 what a role wrote is gone
//	fake followed                         wait until somebody follows a log or events
//	fake failed ROLE STATE CODE LINE...   a role of the first node is in a state after it has failed
//	fake store PROBLEM                    the nodes have a member of the store
//	fake node stop|start                  the own API of the first node on its socket
//	fake missing NODE NAME=REASON...      what a node cannot enforce of sandboxes
//	fake rolled-back ROLE VERSION REASON  the first node runs another version than the catalog's
//	fake volume KIND[/SEALER] STATE PROBLEM [FILE]  the volume of the first node; FILE has its recovery key
//	fake damage-recovery                  a bit of the recovery file flips
//	fake newcomer ROLE...                 a machine registers that asks for roles; $NEWCOMER is its ID
//	fake twin NODE                        another machine calls with the key of a node
//	fake stale NODE                       the heartbeat of a node is not fresh
//	fake kubernetes                       the catalog has the plugin kubernetes
//	fake worker NODE STATE[:REASON] [unserved|as=NODE|lacks=WHAT:REMEDY|image=NAME|refuses=TEXT]...  a node runs kubernetes-worker
//	fake loaded NODE FILE                 the kubernetes-worker of a node has got an archive, exactly
//	fake controller NODE STATE URL        a node runs kubernetes-controller
//	fake pki NODE                         a node runs kubernetes-pki
func fake(ts *testscript.TestScript, _ bool, args []string) {
	cluster := ts.Value(clusterKey{}).(*cluster)
	var err error
	switch args[0] {
	case "outcome":
		var states []*clusterv1.InstanceStatus
		for _, text := range args[2:] {
			name, reason, _ := strings.Cut(text, ":")
			name, process, _ := strings.Cut(name, "/")
			pid, _ := strconv.ParseInt(process, 10, 64)
			states = append(states, &clusterv1.InstanceStatus{State: instanceState(name), Reason: reason, Pid: pid})
		}
		cluster.update(func() { cluster.outcomes[args[1]] = states })
	case "report":
		err = cluster.report(nodeA, args[1], &clusterv1.InstanceStatus{State: instanceState(args[2])})
	case "membership":
		state := hostv1.MembershipState_value["MEMBERSHIP_STATE_"+strings.ToUpper(args[1])]
		cluster.setMembership(hostv1.MembershipState(state), args[2])
	case "curator":
		switch args[1] {
		case "stop":
			// Locked, so that no node waits for the curator meanwhile, with the cluster locked.
			cluster.update(func() { err = cluster.StopCurator() })
		default:
			err = cluster.restartCurator()
			ts.Setenv("CURATOR", cluster.Curator())
		}
	case "clock":
		ts.Setenv("CLOCK", args[1])
		err = cluster.SetClock(scriptTime(args[1]))
	case "calls":
		var count int
		count, err = strconv.Atoi(args[1])
		for ; err == nil && count > 0; count-- {
			_, err = cluster.owner.GetClusterInfo(context.Background(), &clusterv1.GetClusterInfoRequest{})
		}
	case "volume":
		err = fakeVolume(ts, cluster, args)
	case "damage-recovery":
		cluster.damageRecovery()
	case "newcomer":
		var id string
		id, err = cluster.newcomer(args[1:]...)
		ts.Setenv("NEWCOMER", id)
	case "twin":
		var twin *node
		if twin, err = cluster.find(args[1]); err == nil {
			_ = twin.CallAsTwin(context.Background())
		}
	case "kubernetes", "worker", "loaded", "controller", "pki", "stale":
		err = fakeKubernetes(ts, cluster, args)
	default:
		err = fakeNode(cluster, args)
	}
	ts.Check(err)
}

// restartCurator starts the curator again, and returns when it has heard from the nodes.
func (c *cluster) restartCurator() error {
	if err := c.StartCurator(); err != nil {
		return err
	}
	for _, one := range c.nodes {
		if err := c.change(one.ID, func(*node) {}); err != nil {
			return err
		}
	}
	return nil
}

// newcomer has a machine register that nobody has approved, and returns its ID.
func (c *cluster) newcomer(roles ...string) (string, error) {
	ctx, machine := context.Background(), testcluster.NewNode(numberNew)
	with, err := c.owner.CreateTicket(ctx, &clusterv1.CreateTicketRequest{Labels: map[string]string{"rack": "7"}})
	if err != nil {
		return "", err
	}
	conn, err := c.Dial(machine.Key)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	request := &clusterv1.RegisterRequest{
		TicketId: with.GetText().GetTicketId(), TicketSecret: with.GetText().GetSecret(), JoinPublicKey: testcluster.NewNode(numberNew + 1).Key.Public().(ed25519.PublicKey),
		Version: "0.1.0", Sealer: "tpm2", Volume: "luks", Addresses: []string{"192.0.2.20"},
	}
	for _, role := range roles {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	_, err = clusterv1.NewEnrolmentServiceClient(conn).Register(ctx, request)
	return machine.ID, err
}

// fakeVolume gives the first node a volume.
func fakeVolume(ts *testscript.TestScript, cluster *cluster, args []string) error {
	recipient := ""
	if len(args) > 4 {
		key, err := recovery.ReadFile(ts.MkAbs(args[4]))
		if err != nil {
			return err
		}
		recipient = key.Recipient
	}
	storage := openedVolume(args[1], args[3])
	storage.State = clusterv1.StorageState(clusterv1.StorageState_value["STORAGE_STATE_"+strings.ToUpper(args[2])])
	return cluster.setVolume(storage, recipient)
}

// fakeNode changes what only the nodes themselves know.
func fakeNode(cluster *cluster, args []string) error {
	switch args[0] {
	case "event":
		severity := nodev1.Severity(nodev1.Severity_value["SEVERITY_"+strings.ToUpper(args[1])])
		cluster.addEvent(severity, args[2], strings.Trim(args[3], "-"), args[4])
	case "log":
		cluster.addLog(args[1], args[2])
	case "log-emptied":
		cluster.emptyLog(args[1])
	case "followed":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return cluster.untilFollowed(ctx)
	case "failed":
		code, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return cluster.fail(nodeA, args[1], instanceState(args[2]), int32(code), args[4:]...)
	case "store":
		cluster.setStore(args[1])
	case "missing":
		var missing []*clusterv1.Missing
		for _, text := range args[2:] {
			name, reason, _ := strings.Cut(text, "=")
			missing = append(missing, &clusterv1.Missing{Name: name, Reason: reason})
		}
		return cluster.change(args[1], func(node *node) { node.status.Missing = missing })
	case "rolled-back":
		return cluster.report(nodeA, args[1], &clusterv1.InstanceStatus{
			State: instanceState("ready"), Pid: 4711, Tier: clusterv1.Tier_TIER_GRANTED,
			RolledBack: &clusterv1.RolledBack{Version: args[2], Reason: args[3], Time: timestamppb.New(began)},
		})
	case "node":
		if args[1] == "stop" {
			cluster.stopNode()
			return nil
		}
		return cluster.startNode()
	default:
		return fmt.Errorf("unknown: fake %s", args[0])
	}
	return nil
}

func instanceState(name string) hostv1.InstanceState {
	return hostv1.InstanceState(hostv1.InstanceState_value["INSTANCE_STATE_"+strings.ToUpper(name)])
}

// await reads a named pipe, to which a program in the background writes, until a line contains a text; what follows is thrown away.
func await(ts *testscript.TestScript, _ bool, args []string) {
	pipe, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		ts.Logf("%s", lines.Text())
		if strings.Contains(lines.Text(), args[1]) {
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, pipe)
			}()
			ts.Defer(func() {
				<-drained
				_ = pipe.Close()
			})
			return
		}
	}
	_ = pipe.Close()
	ts.Fatalf("%s ended without %q", args[0], args[1])
}

// killNode kills the process that listens in a dev directory, and waits for its end.
func killNode(ts *testscript.TestScript, _ bool, args []string) {
	conn, pid, err := target.DialLocal(context.Background(), ts.MkAbs(args[0]))
	ts.Check(err)
	defer func() { _ = conn.Close() }()
	if pid == os.Getpid() {
		ts.Fatalf("this is the test itself")
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	ts.Check(err)
	defer func() { _ = unix.Close(pidfd) }()
	ts.Check(unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
	for deadline := time.Now().Add(time.Minute); ; {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 1000)
		if errors.Is(err, unix.EINTR) { // such as by the end of another child
			continue
		}
		ts.Check(err)
		if ended > 0 {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("process %d does not end", pid)
		}
	}
}

// waitLine waits until a file, which a program in the background writes, has a text in it: waitline FILE TEXT
func waitLine(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	ts.Check(err)
	defer func() { _ = unix.Close(watch) }()
	_, err = unix.InotifyAddWatch(watch, filepath.Dir(file), unix.IN_MODIFY|unix.IN_CREATE)
	ts.Check(err)
	deadline := time.Now().Add(time.Minute)
	events := make([]byte, 4096)
	for {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), args[1]) {
			return
		}
		left := time.Until(deadline)
		if left <= 0 {
			ts.Fatalf("%s has no %q: %s", args[0], args[1], content)
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || ready == 0 {
			continue
		}
		ts.Check(err)
		_, err = unix.Read(watch, events)
		ts.Check(err)
	}
}

// until runs a command again until its standard output has a text in it: until TEXT COMMAND ARGUMENT... It is for commands that leave out what nobody
// answers in the time that they have for asking.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until TEXT COMMAND ARGUMENT...")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("it never says %q", args[0])
		}
	}
}

// timesOut runs a command that is to fail as its time is over, until its standard error has a text in it: timesout TEXT COMMAND ARGUMENT... It gets --timeout, which is
// longer each time: in a short time a busy machine does not learn what there is to say.
func timesOut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: timesout TEXT COMMAND ARGUMENT...")
	}
	for timeout := 2 * time.Second; timeout < 2*time.Minute; timeout *= 2 {
		exits(ts, false, append([]string{"1"}, append(args[1:], "--timeout", timeout.String())...))
		if strings.Contains(ts.ReadFile("stderr"), args[0]) {
			return
		}
	}
	ts.Fatalf("it never says %q", args[0])
}
