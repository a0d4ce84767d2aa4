package fakecluster

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// BehaviourVariable is the environment variable that says how a Reeved behaves: "" as it should, "die" ends at once, "broken" has a role
// that is Failed, "spoilt" is one whose cluster was made earlier and has a role that is Failed, "stuck" never comes Home, "deaf" does not stop.
const BehaviourVariable = "FAKE_REEVED"

// NodeID is the ID of the node that Reeved runs.
const NodeID = "reeve-00112233445566778899aabbccddeeff"

// Reeved is a program that behaves as reeved does to the one who starts it. It returns its exit code.
func Reeved(arguments []string) int {
	if err := reeved(arguments); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fake reeved:", err)
		return 1
	}
	return 0
}

func reeved(arguments []string) error {
	reap := len(arguments) > 0 && arguments[0] == "reap"
	if reap {
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
	if reap {
		return os.WriteFile(filepath.Join(filepath.Dir(arguments[1]), ".reaped"), nil, 0o600)
	}
	if err := EndWithTest(); err != nil {
		return err
	}
	behaviour := os.Getenv(BehaviourVariable)
	if behaviour == "die" {
		return fmt.Errorf("the disk is on fire\x1b[2J\u009b31m")
	}
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
	return run(ctx, parameters, behaviour)
}

// builtin are the plugins of the cluster that a Reeved makes.
var builtin = []string{"consensus", "curator", "hostsfile"}

// reevedID is the ID of that cluster, which is as long as a ticket wants it.
const reevedID = "5f0c5f0c5f0c5f0c5f0c5f0c5f0c5f0c"

func run(ctx context.Context, parameters *nodev1.Parameters, behaviour string) error {
	cluster, err := NewOf(reevedID, ed25519.PublicKey(parameters.GetBootstrap().GetOwnerPublicKey()))
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := cluster.AddNode(NodeID, NodeID); err != nil {
		return err
	}
	// It is as late there as on the clock of those who call.
	cluster.SetClock(time.Now())
	for _, name := range builtin {
		cluster.AddPlugin(&clusterv1.PluginRecord{
			Name: name, Version: "0.1.0", Generation: 1, Manifest: &rolev1.Manifest{Name: name, Version: "0.1.0", Roles: []*rolev1.RoleManifest{{Name: name}}},
		})
	}
	cluster.SetMembership(hostv1.MembershipState_MEMBERSHIP_STATE_BOOTSTRAPPING, "making a new cluster")
	if behaviour == "spoilt" {
		cluster.SetMembership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "")
	}
	if err := cluster.openVolume(parameters); err != nil {
		return err
	}
	defer func() { _ = os.Remove(openMark(parameters)) }()
	socket := filepath.Join(parameters.GetDirectories().GetRun(), "node.sock")
	_ = os.Remove(socket)
	if err := cluster.ServeLocal(socket); err != nil {
		return err
	}
	if behaviour == "broken" || behaviour == "spoilt" {
		cluster.Outcome("hostsfile", &clusterv1.InstanceStatus{State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "the path is a directory"})
	}
	for _, role := range parameters.GetBootstrap().GetRoles() {
		if err := cluster.Assign(NodeID, role.GetRole(), role.GetConfiguration()); err != nil {
			return err
		}
	}
	if behaviour == "" || behaviour == "deaf" {
		cluster.SetMembership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "")
	}
	<-ctx.Done()
	if behaviour == "deaf" {
		// Until it is killed.
		select {}
	}
	return nil
}

// openVolume gives the node the volume of its parameters: an encrypted one is locked, unless it is made now, or was left open by who ran before.
func (c *Cluster) openVolume(parameters *nodev1.Parameters) error {
	if parameters.GetVolume().GetFscrypt() == nil {
		return c.SetVolume(Opened("plain", ""), "")
	}
	system := parameters.GetDirectories().GetSystem()
	if err := os.MkdirAll(system, 0o700); err != nil {
		return err
	}
	storage := Opened("fscrypt", "")
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
	return c.SetVolume(storage, parameters.GetBootstrap().GetRecoveryRecipient())
}

// openMark is a file that is there while the volume is open: one who leaves does not take it away.
func openMark(parameters *nodev1.Parameters) string {
	return filepath.Join(parameters.GetDirectories().GetSystem(), "open")
}
