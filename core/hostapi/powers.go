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
	// narrows returns nil if requests of a type carry what the grant's parameters speak of.
	narrows(request protoreflect.MessageDescriptor) error
	// permit returns nil if one of the grants, at least one, allows the request, and a gRPC status otherwise.
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
		// A parameter that is not known here was meant to narrow the grant.
		if len(grant.GetParameters()) == 0 {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied, "the grant %q of role %s has parameters, and takes none: have the cluster's owner grant it without", grants[0].GetName(), role)
}

// replaceFile is the power to read and to replace one file. Its one parameter, "path", is that file: absolute, without ".", ".." or
// doubled slashes.
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
		// A parameter that is not known here was meant to narrow the grant further: without its meaning nothing is allowed.
		if len(parameters) == 1 && parameters[pathParameter] == path {
			return nil
		}
		others = append(others, fmt.Sprintf("%v", parameters))
	}
	return status.Errorf(codes.PermissionDenied,
		"role %s may not touch %s: its grant replace-file is for %.500s and nothing else; have the cluster's owner grant replace-file with path %s alone",
		role, path, strings.Join(others, ", "), path)
}

// The powers to set what the machine is called.
const (
	grantHostname  = "set-hostname"
	grantMachineID = "set-machine-id"
)

// setMachine is a power to set one text of the machine. Its one parameter, "path", is the file in which the text is kept.
type setMachine struct {
	grant string
	// field is the request's field with the text.
	field protoreflect.Name
	// pathOptional says that a grant without parameters is a grant, too.
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
	return status.Errorf(codes.PermissionDenied, "role %s has its grant %s for %.500s, which allows nothing: have the cluster's owner grant %s %s",
		role, p.grant, strings.Join(have, ", "), p.grant, want)
}

// path returns the file that the grants of this power name, the first of several; empty: none, and none is needed. It reports false if no grant is one
// of this power.
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

// plainPath returns nil for a path that says by itself which file it names, if no symbolic link is followed.
func plainPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("is not absolute: begin it with /")
	case strings.ContainsRune(path, 0):
		return errors.New("has a zero byte in it")
	case len(path) > 4095:
		return errors.New("is longer than the kernel takes")
	case filepath.Clean(path) != path:
		return fmt.Errorf("is not in its shortest form: write %.200q", filepath.Clean(path))
	case path == "/":
		return errors.New("is a directory: name a file")
	}
	return nil
}
