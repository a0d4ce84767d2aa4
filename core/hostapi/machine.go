package hostapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/hostfile"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// SetHostname sets the machine's host name in the kernel and, if the grant names one, in a file. The file is checked before the kernel is told, so
// that a refused file changes nothing. It is written afterwards, so that a name that the kernel refuses does not come with the next boot.
func (s *service) SetHostname(ctx context.Context, request *hostv1.SetHostnameRequest) (*hostv1.SetHostnameResponse, error) {
	name := request.GetName()
	if err := checkHostname(name); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the host name %.100q %s", name, err)
	}
	path, _ := setMachine{grant: grantHostname, pathOptional: true}.path(s.remit.Grants.GetGrants())
	if path == "" {
		changed, err := setKernelHostname(name)
		if err != nil {
			return nil, s.refusal(err)
		}
		s.logHostname(changed, name)
		return &hostv1.SetHostnameResponse{Changed: changed}, nil
	}
	kernelChanged := false
	kept, err := s.files.rewrite(ctx, "write", path, func(present []byte, exists bool) (_ []byte, err error) {
		if kernelChanged, err = setKernelHostname(name); err != nil {
			return nil, err
		}
		if exists && hostnameIn(present) == name {
			return present, nil
		}
		return []byte(name + "\n"), nil
	})
	s.logHostname(kernelChanged, name)
	if err != nil {
		return nil, s.refusal(err)
	}
	if kept.changed {
		s.log.Info("Wrote the machine's host name for a role", "path", path, "hostname", name, "in_place", kept.inPlace)
	}
	return &hostv1.SetHostnameResponse{Changed: kernelChanged || kept.changed, InPlace: kept.inPlace}, nil
}

func (s *service) logHostname(changed bool, name string) {
	if changed {
		s.log.Info("Set the machine's host name for a role", "hostname", name)
	}
}

// setKernelHostname sets the kernel's host name, and reports whether it changed.
func setKernelHostname(name string) (changed bool, err error) {
	present, err := os.Hostname()
	if err == nil && present == name {
		return false, nil
	}
	switch err := unix.Sethostname([]byte(name)); {
	case errors.Is(err, unix.EPERM):
		return false, hostfile.Errorf(codes.PermissionDenied, err,
			"cannot set the host name %s: that needs root with CAP_SYS_ADMIN: run the core as root, or set the host name by hand", name)
	case err != nil:
		return false, hostfile.Errorf(codes.Internal, err, "cannot set the host name %s: %v: see the node's log, and try again", name, err)
	}
	return true, nil
}

// maxHostname is the kernel's limit for a host name, maxLabel the limit for its parts.
const (
	maxHostname = 64
	maxLabel    = 63
)

// checkHostname accepts a host name of RFC 1123, section 2.1, that no program takes for an address.
func checkHostname(name string) error {
	if name == "" {
		return errors.New("is empty")
	}
	if len(name) > maxHostname {
		return fmt.Errorf("has %d bytes, more than the kernel's %d", len(name), maxHostname)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return errors.New("has an empty part: begin and end it with a letter or a digit, with one dot at a time in between")
		case len(label) > maxLabel:
			return fmt.Errorf("has a part of %d bytes, more than %d", len(label), maxLabel)
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("has a part that begins or ends with '-'")
		case strings.Trim(label, hostnameLetters) != "":
			return errors.New("has a character other than letters, digits, '-' and '.'")
		}
		last = label
	}
	// inet_aton(3) takes hexadecimal numbers too.
	digits, hex := strings.CutPrefix(strings.ToLower(last), "0x")
	if strings.Trim(last, "0123456789") == "" || hex && strings.Trim(digits, "0123456789abcdef") == "" {
		return errors.New("would be taken for an address: its last part must not be a number")
	}
	return nil
}

const hostnameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// hostnameIn returns the name in a hostname(5) file: the first line that is neither empty nor a comment.
func hostnameIn(content []byte) string {
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line
		}
	}
	return ""
}

// SetMachineID writes the machine's ID if it has none.
func (s *service) SetMachineID(ctx context.Context, request *hostv1.SetMachineIDRequest) (*hostv1.SetMachineIDResponse, error) {
	id := request.GetMachineId()
	if err := checkMachineID(id); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the machine ID %.100q %s", id, err)
	}
	const doing = "write the machine's ID to"
	path, ok := setMachine{grant: grantMachineID}.path(s.remit.Grants.GetGrants())
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "the grant set-machine-id names no file")
	}
	kept, err := s.files.rewrite(ctx, doing, path, func(content []byte, _ bool) ([]byte, error) {
		switch present, err := machineIDIn(content); {
		case err != nil:
			return nil, refuse(codes.FailedPrecondition, doing, path, "its content is not a machine ID: look at it, and empty it if nobody needs it")
		case present == id:
			return content, nil
		case present != "":
			return nil, otherMachineID(path, present, id)
		}
		return []byte(id + "\n"), nil
	})
	if err != nil {
		return nil, s.refusal(err)
	}
	if kept.changed {
		s.log.Info("Gave the machine an ID for a role", "path", path, "machine_id", id, "in_place", kept.inPlace)
	}
	return &hostv1.SetMachineIDResponse{Changed: kept.changed, InPlace: kept.inPlace}, nil
}

// otherMachineID refuses to replace another machine ID.
func otherMachineID(path, present, id string) error {
	refused := status.Newf(codes.FailedPrecondition,
		"the machine already has the ID %s (%s), by which others know it: to replace it with %[3]s, empty %[2]s and reboot",
		present, path, id)
	detailed, err := refused.WithDetails(&errdetails.ErrorInfo{Domain: hostv1.ReasonDomain, Reason: hostv1.ReasonOtherMachineID})
	if err != nil {
		return refused.Err()
	}
	return detailed.Err()
}

const machineIDLength = 32

// checkMachineID accepts a machine ID of machine-id(5).
func checkMachineID(id string) error {
	switch {
	case len(id) != machineIDLength || strings.Trim(id, "0123456789abcdef") != "":
		return errors.New("is not one: want 32 lower-case hexadecimal digits")
	case strings.Trim(id, "0") == "":
		return errors.New("is not one: not all digits may be zero")
	}
	return nil
}

var errNotMachineID = errors.New("not a machine ID")

// machineIDIn returns the ID in a machine-id(5) file, in lower case; "" if the machine has none yet. That is an empty file, the word "uninitialized",
// which images have before their first boot, or only zeros.
func machineIDIn(content []byte) (string, error) {
	id := strings.ToLower(strings.TrimSpace(string(content)))
	switch {
	case id == "" || id == "uninitialized" || len(id) == machineIDLength && strings.Trim(id, "0") == "":
		return "", nil
	case checkMachineID(id) != nil:
		return "", errNotMachineID
	}
	return id, nil
}
