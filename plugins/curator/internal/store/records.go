package store

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// decode reads the record at a key: nil for the keys that are not part of the State. The error is a *RecordError.
func decode(key string, value []byte) (proto.Message, error) {
	kind, name := split(key)
	var record proto.Message
	var check func() error
	switch kind {
	case keyCluster:
		cluster := new(curatorv1.Cluster)
		record, check = cluster, func() error { return checkCluster(cluster) }
	case keyCertificates:
		ca := new(curatorv1.CertificateAuthority)
		record, check = ca, func() error {
			if len(ca.GetCertificates()) == 0 {
				return errors.New("it holds no certificate")
			}
			return nil
		}
	case keyStoreState:
		told := new(consensusv1.StoreState)
		record, check = told, func() error { return checkStoreState(told) }
	case keyGeneration:
		record = new(consensusv1.StoreGeneration)
	case keyEpoch:
		record = new(curatorv1.Epoch)
	case keyPolicy:
		record = new(clusterv1.ClusterPolicy)
	case keyWiped:
		record = new(curatorv1.WipedUsers)
	case prefixNodes:
		node := new(clusterv1.NodeRecord)
		record, check = node, func() error { return checkNode(name, node) }
	case prefixPlugins:
		plugin := new(clusterv1.PluginRecord)
		record, check = plugin, func() error { return checkPlugin(name, plugin) }
	case prefixOperators:
		operator := new(clusterv1.Operator)
		record, check = operator, func() error { return checkOperator(name, operator) }
	case prefixStatus:
		status := new(clusterv1.NodeStatus)
		record, check = status, func() error {
			if status.GetNodeId() != name {
				return fmt.Errorf("it is about node %q", status.GetNodeId())
			}
			return nil
		}
	case keySnapshotTask:
		record = new(clusterv1.SnapshotTask)
	case prefixSnapshots:
		kept := new(clusterv1.NodeSnapshots)
		record, check = kept, func() error {
			if kept.GetNodeId() != name {
				return fmt.Errorf("it is about node %q", kept.GetNodeId())
			}
			return nil
		}
	case prefixHeartbeats:
		record = new(curatorv1.Heartbeat)
	case prefixTickets:
		ticket := new(curatorv1.Ticket)
		record, check = ticket, func() error { return checkTicket(name, ticket) }
	case prefixIncarnations:
		incarnation := new(curatorv1.KnownIncarnation)
		record, check = incarnation, func() error { return checkIncarnation(incarnation) }
	case prefixRefused:
		record = new(curatorv1.RefusedIncarnation)
	default:
		return nil, nil
	}
	if err := proto.Unmarshal(value, record); err != nil {
		return nil, &RecordError{Key: key, Err: err}
	}
	if check != nil {
		if err := check(); err != nil {
			return nil, &RecordError{Key: key, Err: err}
		}
	}
	return record, nil
}

func checkCluster(cluster *curatorv1.Cluster) error {
	switch {
	case cluster.GetFormat() == 0:
		return errors.New("it has no format")
	case cluster.GetFormat() != Format:
		// What else is in it is for the version that knows the format.
		return nil
	case cluster.GetClusterId() == "":
		return errors.New("it has no cluster ID")
	case len(cluster.GetOwnerPublicKey()) != ed25519.PublicKeySize:
		return fmt.Errorf("its owner key has %d bytes", len(cluster.GetOwnerPublicKey()))
	case len(cluster.GetFirstNodePublicKey()) != ed25519.PublicKeySize:
		return fmt.Errorf("its first node's key has %d bytes", len(cluster.GetFirstNodePublicKey()))
	}
	return nil
}

func checkPlugin(name string, plugin *clusterv1.PluginRecord) error {
	if plugin.GetName() != name {
		return fmt.Errorf("it is about plugin %q", plugin.GetName())
	}
	var manifests []*rolev1.Manifest
	if plugin.GetManifest() != nil {
		manifests = append(manifests, plugin.GetManifest())
	}
	for _, version := range []*clusterv1.PluginVersion{plugin.GetWaiting(), plugin.GetPrevious()} {
		if version != nil {
			manifests = append(manifests, version.GetManifest())
		}
	}
	if plugin.GetManifest() == nil && (plugin.GetWaiting() == nil || plugin.GetPrevious() != nil || len(plugin.GetGrants()) > 0) {
		return errors.New("no version of it runs, and it is not one that only waits")
	}
	for _, manifest := range manifests {
		if manifest.GetName() != name {
			return fmt.Errorf("it is about plugin %q with the manifest of %q", name, manifest.GetName())
		}
	}
	return nil
}

func checkNode(id string, node *clusterv1.NodeRecord) error {
	if len(node.GetPublicKey()) != ed25519.PublicKeySize {
		return fmt.Errorf("its public key has %d bytes", len(node.GetPublicKey()))
	}
	if node.GetId() != id || identity.NodeID(node.GetPublicKey()) != id {
		return fmt.Errorf("it is about node %q with the key of %q", node.GetId(), identity.NodeID(node.GetPublicKey()))
	}
	return nil
}

// operatorID is the form of the IDs of operators' records, which are part of the SPIFFE IDs of their sessions.
var operatorID = regexp.MustCompile(`^[0-9a-f]{32}$`)

func checkOperator(name string, operator *clusterv1.Operator) error {
	switch {
	case operator.GetName() != name || !identity.ValidName(name):
		return fmt.Errorf("it is about operator %q", operator.GetName())
	case !operatorID.MatchString(operator.GetId()):
		return fmt.Errorf("its ID is %q", operator.GetId())
	case len(operator.GetPublicKey()) != ed25519.PublicKeySize:
		return fmt.Errorf("its public key has %d bytes", len(operator.GetPublicKey()))
	case operator.GetRole() == clusterv1.OperatorRole_OPERATOR_ROLE_UNSPECIFIED || clusterv1.OperatorRole_name[int32(operator.GetRole())] == "":
		return fmt.Errorf("its role is %s", operator.GetRole())
	}
	return nil
}

// encode writes a record the same way every time, so that equal records are equal bytes.
func encode(record proto.Message) (string, error) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(record)
	if err != nil {
		return "", fmt.Errorf("write a %s: %w", record.ProtoReflect().Descriptor().FullName(), err)
	}
	return string(value), nil
}
