package hostapi

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// power is what grants of one name allow.
type power interface {
	// narrows fails unless the requests of this type have the field that the grant's parameters restrict.
	narrows(request protoreflect.MessageDescriptor) error
	// permit returns nil if one of the grants (at least one is given) allows the request, otherwise a gRPC status.
	permit(role string, grants []*rolev1.Grant, request any) error
}

func powerOf(grant string) (power, bool) {
	switch grant {
	case "replace-file":
		return replaceFile{}, true
	case grantHostname:
		return setMachine{grant: grantHostname, field: "name", pathOptional: true}, true
	case grantMachineID:
		return setMachine{grant: grantMachineID, field: "machine_id"}, true
	case remit.WatchOperators:
		return bare{}, true
	default:
		return nil, false
	}
}

// bare is a power without parameters.
type bare struct{}

func (bare) narrows(protoreflect.MessageDescriptor) error { return nil }

func (bare) permit(role string, grants []*rolev1.Grant, _ any) error {
	for _, grant := range grants {
		// An unknown parameter was meant to narrow the grant.
		if len(grant.GetParameters()) == 0 {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied, "the grant %q of role %s must not have parameters: ask the cluster's owner to grant it without", grants[0].GetName(), role)
}

// replaceFile is the power to read and replace one file. Its one parameter, "path", is absolute and has no ".", ".." or doubled slashes.
type replaceFile struct{}

const pathParameter = "path"

func (replaceFile) narrows(request protoreflect.MessageDescriptor) error {
	field := request.Fields().ByName(pathParameter)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return fmt.Errorf("%s has no string field %q", request.FullName(), pathParameter)
	}
	return nil
}

func (replaceFile) permit(role string, grants []*rolev1.Grant, request any) error {
	named, ok := request.(interface{ GetPath() string })
	if !ok {
		return status.Errorf(codes.PermissionDenied, "a %T names no file", request)
	}
	path := named.GetPath()
	if err := plainPath(path); err != nil {
		return status.Errorf(codes.InvalidArgument, "the path %.200q %s", path, err)
	}
	var others []string
	for _, grant := range grants {
		parameters := grant.GetParameters()
		// An unknown parameter was meant to narrow the grant further, so the grant allows nothing.
		if len(parameters) == 1 && parameters[pathParameter] == path {
			return nil
		}
		others = append(others, fmt.Sprintf("%v", parameters))
	}
	return status.Errorf(codes.PermissionDenied,
		"role %s may not touch %s: its grant replace-file is for %.500s only; ask the cluster's owner to grant replace-file with the one parameter path %s",
		role, path, strings.Join(others, ", "), path)
}

// The powers to name the machine.
const (
	grantHostname  = "set-hostname"
	grantMachineID = "set-machine-id"
)

// setMachine is a power to set one name of the machine. Its one parameter, "path", is the file that keeps the name.
type setMachine struct {
	grant string
	// field is the request's field with the name.
	field protoreflect.Name
	// pathOptional says that a grant without parameters is valid too.
	pathOptional bool
}

func (p setMachine) narrows(request protoreflect.MessageDescriptor) error {
	if field := request.Fields().ByName(p.field); field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return fmt.Errorf("%s has no string field %q", request.FullName(), p.field)
	}
	return nil
}

func (p setMachine) permit(role string, grants []*rolev1.Grant, _ any) error {
	if _, ok := p.path(grants); ok {
		return nil
	}
	var have []string
	for _, grant := range grants {
		have = append(have, fmt.Sprintf("%v", grant.GetParameters()))
	}
	want := "with the one parameter path, the absolute path of a file in its shortest form"
	if p.pathOptional {
		want += ", or without parameters"
	}
	return status.Errorf(codes.PermissionDenied, "the grant %[2]s of role %[1]s is for %.500[3]s, which allows nothing: ask the cluster's owner to grant %[4]s %[5]s",
		role, p.grant, strings.Join(have, ", "), p.grant, want)
}

// path returns the first file that a grant of this power names; "" if a grant needs none. It returns false if no grant is one of this power.
func (p setMachine) path(grants []*rolev1.Grant) (path string, ok bool) {
	for _, grant := range grants {
		parameters := grant.GetParameters()
		switch path := parameters[pathParameter]; {
		case grant.GetName() != p.grant:
		case len(parameters) == 0 && p.pathOptional:
			ok = true
		case len(parameters) == 1 && plainPath(path) == nil:
			return path, true
		}
	}
	return "", ok
}

// plainPath accepts a path that names its file without following symbolic links.
func plainPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("is not absolute: begin it with /")
	case strings.ContainsRune(path, 0):
		return errors.New("contains a zero byte")
	case len(path) > 4095:
		return errors.New("is too long for the kernel")
	case filepath.Clean(path) != path:
		return fmt.Errorf("is not in its shortest form: write %.200q", filepath.Clean(path))
	case path == "/":
		return errors.New("is a directory: name a file")
	}
	return nil
}
