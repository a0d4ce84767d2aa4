package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// behaviourVariable is the environment variable that says how fakeReeved behaves: "" as it should, "die" ends at once, "die DIRECTORY" does in that directory, "broken" has a role
// that is Failed, "spoilt" is one whose cluster was made earlier and has a role that is Failed, "stuck" never comes Home, "deaf" does not stop, "picky" refuses its parameters when it is asked beforehand.
const behaviourVariable = "FAKE_REEVED"

// reevedNode is the number of the key of the node that fakeReeved runs.
const reevedNode = 92540

// fakeReeved is a program that behaves as reeved does to the one who starts it. It returns its exit code.
func fakeReeved(arguments []string) int {
	if err := reeved(arguments); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fake reeved:", err)
		return 1
	}
	return 0
}

func reeved(arguments []string) error {
	reap := len(arguments) > 0 && arguments[0] == "reap"
	check := len(arguments) > 0 && arguments[0] == "check"
	if reap || check {
		arguments = arguments[1:]
	}
	if len(arguments) != 2 || arguments[0] != "--parameters" {
		return fmt.Errorf("unexpected arguments %q", arguments)
	}
	text, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	parameters := &nodev1.Parameters{}
	if err := protojson.Unmarshal(document, parameters); err != nil {
		return err
	}
	if check {
		if os.Getenv(behaviourVariable) == "picky" {
			return errors.New("one thing: mend it\nanother thing: mend it too")
		}
		if os.Getenv(behaviourVariable) == "frugal" {
			_, err := fmt.Println("warning: the node starts without this: one thing: mend it")
			return err
		}
		_, err := fmt.Println("nothing is wrong")
		return err
	}
	if reap {
		return os.WriteFile(filepath.Join(filepath.Dir(arguments[1]), ".reaped"), nil, 0o600)
	}
	if err := endWithTest(); err != nil {
		return err
	}
	behaviour := os.Getenv(behaviourVariable)
	if directory, one := strings.CutPrefix(behaviour, "die "); one {
		behaviour = ""
		if strings.HasSuffix(filepath.Dir(arguments[1]), directory) {
			behaviour = "die"
		}
	}
	if behaviour == "die" {
		return fmt.Errorf("the disk is on fire\x1b[2J\u009b31m")
	}
	lock, err := lockSystem(parameters)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR1)
	go func() {
		<-leave
		// Roles and volume stay as they are.
		os.Exit(0)
	}()
	if parameters.GetRegister() != nil {
		return join(ctx, parameters, behaviour)
	}
	return makeCluster(ctx, parameters, behaviour)
}

// lockSystem holds the node's system directory, by which a node without a socket is found.
func lockSystem(parameters *nodev1.Parameters) (*os.File, error) {
	system := parameters.GetDirectories().GetSystem()
	if err := os.MkdirAll(system, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(system, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another reeved holds %s: %w", system, err), lock.Close())
	}
	return lock, nil
}

// makeCluster runs a node that makes a cluster.
func makeCluster(ctx context.Context, parameters *nodev1.Parameters, behaviour string) error {
	node := newNode(reevedNode)
	request := &clusterv1.BootstrapRequest{
		ClusterId: clusterID, OwnerPublicKey: parameters.GetBootstrap().GetOwnerPublicKey(), Plugins: catalog("consensus", "curator", "hostsfile"),
		Labels: map[string]string{"zone": "a"},
	}
	for _, role := range parameters.GetBootstrap().GetRoles() {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	}
	cluster, err := newCluster(request, nil, os.Getenv("CLOCK"), node)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.end() }()
	cluster.setMembership(hostv1.MembershipState_MEMBERSHIP_STATE_BOOTSTRAPPING, "making a new cluster")
	if behaviour == "spoilt" {
		cluster.setMembership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "")
	}
	if behaviour == "broken" || behaviour == "spoilt" {
		err := cluster.report(node.ID, "hostsfile", &clusterv1.InstanceStatus{State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "the path is a directory"})
		if err != nil {
			return err
		}
	}
	if err := cluster.openVolume(parameters); err != nil {
		return err
	}
	defer func() { _ = os.Remove(openMark(parameters)) }()
	socket := filepath.Join(parameters.GetDirectories().GetRun(), "node.sock")
	_ = os.Remove(socket)
	if err := cluster.serveLocal(socket); err != nil {
		return err
	}
	if behaviour == "" || behaviour == "deaf" {
		cluster.setMembership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "")
	}
	<-ctx.Done()
	if behaviour == "deaf" {
		// Until it is killed.
		select {}
	}
	return nil
}

// openVolume gives the node the volume of its parameters: an encrypted one is locked, unless it is made now, or was left open by who ran before.
func (c *cluster) openVolume(parameters *nodev1.Parameters) error {
	if parameters.GetVolume().GetFscrypt() == nil {
		return c.setVolume(openedVolume("plain", ""), "")
	}
	system := parameters.GetDirectories().GetSystem()
	if err := os.MkdirAll(system, 0o700); err != nil {
		return err
	}
	storage := openedVolume("fscrypt", "")
	made := filepath.Join(system, "configuration.json")
	if _, err := os.Stat(made); err == nil {
		if _, err := os.Stat(openMark(parameters)); err != nil {
			storage.State = locked
		}
	}
	if err := os.WriteFile(made, nil, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(openMark(parameters), nil, 0o600); err != nil {
		return err
	}
	return c.setVolume(storage, parameters.GetBootstrap().GetRecoveryRecipient())
}

// openMark is a file that is there while the volume is open: one who leaves does not take it away.
func openMark(parameters *nodev1.Parameters) string {
	return filepath.Join(parameters.GetDirectories().GetSystem(), "open")
}
