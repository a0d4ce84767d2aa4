package roletest

import (
	"context"
	"maps"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// machine is what a role may set of the machine. The test's own machine is not changed.
type machine struct {
	hostname, machineID *string // nil: not granted
}

// GrantHostname sets the machine's host name and lets the role change it. A role that is started afterwards is granted "set-hostname". Only a real
// core checks names.
func (h *Host) GrantHostname(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hostname == nil {
		h.grants = append(h.grants, &rolev1.Grant{Name: "set-hostname", Parameters: map[string]string{"path": "/etc/hostname"}})
	}
	h.hostname = &name
}

// GrantMachineID sets the machine's ID; if it is empty, the role may set it. A role that is started afterwards is granted "set-machine-id".
func (h *Host) GrantMachineID(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machineID == nil {
		h.grants = append(h.grants, &rolev1.Grant{Name: "set-machine-id", Parameters: map[string]string{"path": "/etc/machine-id"}})
	}
	h.machineID = &id
}

// Grant tells a role that is started afterwards of a grant that the host itself ignores.
func (h *Host) Grant(name string, parameters map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = append(h.grants, &rolev1.Grant{Name: name, Parameters: maps.Clone(parameters)})
}

// granting returns the grants for a role.
func (h *Host) granting() []*rolev1.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	grants := make([]*rolev1.Grant, len(h.grants))
	for n, grant := range h.grants {
		grants[n] = proto.CloneOf(grant)
	}
	return grants
}

// Hostname is the machine's host name; empty if GrantHostname was not called.
func (h *Host) Hostname() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return valueOf(h.hostname)
}

// MachineID is the machine's ID; empty if it has none.
func (h *Host) MachineID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return valueOf(h.machineID)
}

func valueOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// SetHostname implements hostv1.HostServiceServer.
func (h *Host) SetHostname(_ context.Context, request *hostv1.SetHostnameRequest) (*hostv1.SetHostnameResponse, error) {
	h.called("SetHostname")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hostname == nil {
		return nil, status.Error(codes.PermissionDenied, "the role is not granted set-hostname")
	}
	changed := *h.hostname != request.GetName()
	*h.hostname = request.GetName()
	return &hostv1.SetHostnameResponse{Changed: changed}, nil
}

// SetMachineID implements hostv1.HostServiceServer.
func (h *Host) SetMachineID(_ context.Context, request *hostv1.SetMachineIDRequest) (*hostv1.SetMachineIDResponse, error) {
	h.called("SetMachineID")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.machineID == nil:
		return nil, status.Error(codes.PermissionDenied, "the role is not granted set-machine-id")
	case *h.machineID == request.GetMachineId():
		return &hostv1.SetMachineIDResponse{}, nil
	case *h.machineID != "":
		refused, err := status.New(codes.FailedPrecondition, "the machine already has another ID").
			WithDetails(&errdetails.ErrorInfo{Domain: hostv1.ReasonDomain, Reason: hostv1.ReasonOtherMachineID})
		if err != nil {
			return nil, err
		}
		return nil, refused.Err()
	}
	*h.machineID = request.GetMachineId()
	return &hostv1.SetMachineIDResponse{Changed: true}, nil
}
