package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

// nameMachine sets the machine's host name and its ID, as far as that is configured, and returns what could not be done. It may be called
// again and again: what is so already stays as it is, and a host name that somebody has changed is set again.
func (r *run) nameMachine(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	var problems []error
	if name := r.configuration.Hostname.Of(r.host.NodeID()); name != "" {
		problems = append(problems, r.setHostname(ctx, name))
	}
	if r.configuration.MachineID && !r.hasMachineID {
		err := r.setMachineID(ctx, strings.TrimPrefix(r.host.NodeID(), "reeve-"))
		r.hasMachineID = err == nil
		problems = append(problems, err)
	}
	return problems
}

func (r *run) setHostname(ctx context.Context, name string) error {
	files := granted(r.host.Grants(), grantSetHostname)
	if len(files) == 0 {
		return notGranted("the host name", "hostname", grantSetHostname, hostnamePath)
	}
	changed, inPlace, err := r.host.SetHostname(ctx, name)
	if err != nil {
		return whyNot("the host name is not set", err)
	}
	r.written.note(files[0], inPlace)
	if changed {
		r.host.Logger().Info("the machine has a new host name", "hostname", name)
	}
	return nil
}

func (r *run) setMachineID(ctx context.Context, id string) error {
	files := granted(r.host.Grants(), grantSetMachineID)
	if len(files) == 0 {
		return notGranted("the machine ID", "machineID", grantSetMachineID, machineIDPath)
	}
	changed, inPlace, err := r.host.SetMachineID(ctx, id)
	switch {
	case errors.Is(err, role.ErrOtherMachineID):
		return fmt.Errorf("the machine has another ID than the node's already and keeps it: take machineID out of the role's configuration, or empty %s and reboot", files[0])
	case err != nil:
		return whyNot("the machine ID is not set", err)
	}
	r.written.note(files[0], inPlace)
	if changed {
		r.host.Logger().Info("the machine was given an ID", "machine_id", id)
	}
	return nil
}

func notGranted(what, setting, grant, path string) error {
	return fmt.Errorf("%s is not set, since the role is not granted %s: have the cluster's owner grant it %s with path %s, or take %q out of the role's configuration",
		what, grant, grant, path, setting)
}

// whyNot explains an error of the host. One of permissions is here not one of grants, which the role knows of.
func whyNot(what string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s, since the node may not: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
