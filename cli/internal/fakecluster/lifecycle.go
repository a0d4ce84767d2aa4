package fakecluster

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// changeRecord changes the record of a node, unless dryRun, and returns it as it is then, or would be.
func (m *management) changeRecord(id string, dryRun bool, change func(*clusterv1.NodeRecord) error) (*clusterv1.NodeRecord, error) {
	node, err := m.cluster.find(id)
	if err != nil {
		return nil, err
	}
	record := proto.CloneOf(node.GetRecord())
	if err = change(record); err == nil && !dryRun {
		node.Record = record
	}
	return record, err
}

func relabel(record *clusterv1.NodeRecord, labels map[string]string) {
	if record.Labels == nil {
		record.Labels = make(map[string]string)
	}
	maps.Copy(record.Labels, labels)
	maps.DeleteFunc(record.Labels, func(_, value string) bool { return value == "" })
}

func (m *management) ApproveNode(_ context.Context, request *clusterv1.ApproveNodeRequest) (*clusterv1.ApproveNodeResponse, error) {
	record, err := m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(record *clusterv1.NodeRecord) error {
		if record.GetState() != clusterv1.NodeState_NODE_STATE_NEW {
			return nil
		}
		record.State, record.Roles = clusterv1.NodeState_NODE_STATE_STANDBY, record.GetRegistration().GetRoles()
		if request.GetSetRoles() {
			record.Roles = request.GetRoles()
		}
		relabel(record, request.GetLabels())
		return nil
	})
	return &clusterv1.ApproveNodeResponse{Node: record}, err
}

func (m *management) AcceptNode(_ context.Context, request *clusterv1.AcceptNodeRequest) (*clusterv1.AcceptNodeResponse, error) {
	record, err := m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(*clusterv1.NodeRecord) error { return nil })
	if node, findErr := m.cluster.find(request.GetNodeId()); findErr == nil && !request.GetDryRun() {
		node.Problem = ""
	}
	return &clusterv1.AcceptNodeResponse{Node: &clusterv1.Node{Record: record}}, err
}

func (m *management) SetLabels(_ context.Context, request *clusterv1.SetLabelsRequest) (*clusterv1.SetLabelsResponse, error) {
	record, err := m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(record *clusterv1.NodeRecord) error {
		relabel(record, request.GetLabels())
		return nil
	})
	return &clusterv1.SetLabelsResponse{Node: record}, err
}

func (m *management) DrainNode(_ context.Context, request *clusterv1.DrainNodeRequest) (*clusterv1.DrainNodeResponse, error) {
	record, err := m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(record *clusterv1.NodeRecord) error {
		record.Drained = !request.GetUndo()
		return nil
	})
	return &clusterv1.DrainNodeResponse{Node: record}, err
}

func (m *management) DecommissionNode(_ context.Context, request *clusterv1.DecommissionNodeRequest) (*clusterv1.DecommissionNodeResponse, error) {
	record, err := m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(record *clusterv1.NodeRecord) error {
		if record.GetId() == m.cluster.nodes[0].GetRecord().GetId() {
			return status.Errorf(codes.FailedPrecondition, "node %s has the last curator", record.GetId())
		}
		record.State = clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
		return nil
	})
	return &clusterv1.DecommissionNodeResponse{Node: record}, err
}

func (m *management) DeleteNode(_ context.Context, request *clusterv1.DeleteNodeRequest) (*clusterv1.DeleteNodeResponse, error) {
	response := &clusterv1.DeleteNodeResponse{}
	var err error
	response.Node, err = m.changeRecord(request.GetNodeId(), request.GetDryRun(), func(record *clusterv1.NodeRecord) error {
		node, err := m.cluster.find(record.GetId())
		if err != nil {
			return err
		}
		if node.GetHealthy() {
			const lives = "the node lives: its heartbeat is fresh"
			if !request.GetForce() {
				return status.Error(codes.FailedPrecondition, lives)
			}
			response.Bypassed = append(response.Bypassed, lives)
		}
		record.State, record.Roles = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, nil
		return nil
	})
	return response, err
}

// ListCertificates answers who knows pages with one certificate at a time, the one that ends last first.
func (m *management) ListCertificates(_ context.Context, request *clusterv1.ListCertificatesRequest) (*clusterv1.ListCertificatesResponse, error) {
	c := m.cluster
	certificate := func(kind clusterv1.CertificateKind, subject, node, use string, left time.Duration) *clusterv1.Certificate {
		return &clusterv1.Certificate{
			Kind: kind, Subject: subject, NodeId: node, NotBefore: timestamppb.New(Began), NotAfter: timestamppb.New(c.clock.Add(left)), Fingerprint: "00ff", Use: use,
		}
	}
	first := c.nodes[0].GetRecord().GetId()
	of := certificate(clusterv1.CertificateKind_CERTIFICATE_KIND_NODE, "spiffe://"+c.authority.domain+"/node/"+first, first, "", time.Hour)
	ca := certificate(clusterv1.CertificateKind_CERTIFICATE_KIND_CA, "CN=reeve", "", "signs", 24*365*time.Hour)
	switch {
	case request.GetLimit() == 0:
		return &clusterv1.ListCertificatesResponse{Phase: c.phase(), Certificates: []*clusterv1.Certificate{of, ca}}, nil
	case request.GetAfter() == "":
		return &clusterv1.ListCertificatesResponse{Phase: c.phase(), Certificates: []*clusterv1.Certificate{ca}, Next: "the first"}, nil
	}
	return &clusterv1.ListCertificatesResponse{Phase: c.phase(), Certificates: []*clusterv1.Certificate{of}}, nil
}

// phase is where the rotation of the CA stands. The cluster is locked.
func (c *Cluster) phase() clusterv1.CAPhase {
	return clusterv1.CAPhase_CA_PHASE_STEADY + clusterv1.CAPhase(c.steps%3)
}

func (m *management) RotateCA(_ context.Context, request *clusterv1.RotateCARequest) (*clusterv1.RotateCAResponse, error) {
	c := m.cluster
	if want := clusterv1.CAStep_CA_STEP_PREPARE + clusterv1.CAStep(c.steps%3); request.GetStep() != want {
		return nil, status.Errorf(codes.FailedPrecondition, "that is not the next step, which is %s", want)
	}
	if request.GetStep() == clusterv1.CAStep_CA_STEP_RETIRE && !request.GetForce() {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s has a certificate of the old CA", c.nodes[0].GetRecord().GetId())
	}
	response := &clusterv1.RotateCAResponse{}
	c.steps++
	response.Phase = c.phase()
	if request.GetDryRun() {
		c.steps--
	}
	if response.GetPhase() == clusterv1.CAPhase_CA_PHASE_PREPARED {
		response.Waiting = []string{c.nodes[0].GetRecord().GetId() + ": it does not know the new CA"}
	}
	return response, nil
}
