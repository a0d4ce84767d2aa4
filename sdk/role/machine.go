package role

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// ErrOtherMachineID says that the machine already has another ID.
var ErrOtherMachineID = errors.New("the machine has another ID already")

// SetHostname sets the machine's host name (RFC 1123, at most 64 bytes). It needs the grant "set-hostname". If the grant has a parameter "path", the
// name is also written to that file, where it survives a reboot. changed reports whether the machine had another name, inPlace whether the file was
// written in place because it is a mount point. By errors.Is an error is fs.ErrPermission if it is not granted. Errors have a gRPC status.
func (h *Host) SetHostname(ctx context.Context, name string) (changed, inPlace bool, err error) {
	response, err := h.client.SetHostname(ctx, &hostv1.SetHostnameRequest{Name: name})
	if err != nil {
		return false, false, hostError("set the host name "+strconv.Quote(name), err)
	}
	return response.GetChanged(), response.GetInPlace(), nil
}

// SetMachineID gives the machine an ID (machine-id(5): 32 lower-case hexadecimal digits, not all zero) if it has none, in the file that the parameter
// "path" of the grant "set-machine-id" names. changed reports whether the machine had no ID, inPlace whether the file was written in place because it
// is a mount point. By errors.Is an error is ErrOtherMachineID if the machine has another ID, which stays, or fs.ErrPermission if it is not granted.
// Errors have a gRPC status.
func (h *Host) SetMachineID(ctx context.Context, id string) (changed, inPlace bool, err error) {
	response, err := h.client.SetMachineID(ctx, &hostv1.SetMachineIDRequest{MachineId: id})
	switch doing := "set the machine ID " + strconv.Quote(id); {
	case hasReason(err, hostv1.ReasonOtherMachineID):
		return false, false, fmt.Errorf("host: %s: %w (%w)", doing, ErrOtherMachineID, err)
	case err != nil:
		return false, false, hostError(doing, err)
	}
	return response.GetChanged(), response.GetInPlace(), nil
}

// hasReason reports whether the details of a gRPC status have a reason.
func hasReason(err error, reason string) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == hostv1.ReasonDomain && info.GetReason() == reason {
			return true
		}
	}
	return false
}
