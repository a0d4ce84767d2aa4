package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/proto/hostfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Check returns what Run would refuse of a node with these parameters, and what of the machine would keep its roles from working, as far as that can be told without changing
// anything. lacks is what the node would start without. It may run beside the node.
func Check(ctx context.Context, parameters *nodev1.Parameters, file string) (problems, lacks []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	layout, err := unseal.LayoutOf(parameters)
	if err != nil {
		return []error{err}, nil
	}
	problems = append(storage.Check(layout), unseal.Check(ctx, parameters, layout, params.OpenMark(file))...)
	if parameters.GetVolume().GetPlain() != nil {
		add(shortage(layout))
	}
	_, err = checkCapabilities(hclog.NewNullLogger())
	add(err)
	if err := users.Check(parameters.GetSandbox().GetUsers()); err != nil {
		add(fmt.Errorf("node: sandbox.users in the parameters: %w", err))
	}
	if log := parameters.GetLog().GetFile(); log != "" {
		at, err := storage.Nearest(filepath.Dir(log))
		if err == nil {
			err = storage.CheckWritable(at)
		}
		if err != nil {
			add(fmt.Errorf("node: log.file in the parameters: %w", err))
		}
	}
	fresh := unseal.Fresh(layout)
	// Of a node that runs, the addresses are taken by itself.
	if !runs(ctx, layout) {
		taken, without := checkListeners(ctx, parameters, fresh)
		problems, lacks = append(problems, taken...), without
	}
	// Once it has begun, the cluster's catalog and grants count, and not what was built.
	var assigned *catalog.Assignment
	if fresh {
		var refused []error
		assigned, refused = catalog.Expect(parameters)
		problems = append(problems, refused...)
	} else if assigned, err = catalog.ReadAssignment(layout.Assignment()); err != nil {
		return problems, lacks // the volume is closed, or only root reads it, or the cluster has not assigned anything
	}
	files := checkFiles(assigned)
	if fresh && parameters.GetRegister() != nil {
		// The cluster may grant other files than the plugin was built with.
		return problems, append(lacks, files...)
	}
	return append(problems, files...), lacks
}

// shortage is the error of a volume on which roles would not start.
func shortage(layout storage.Layout) error {
	at, err := storage.Nearest(layout.Data)
	if err != nil {
		return nil // storage.Check says so
	}
	layout.Data = at
	if lack := layout.Shortage(); lack != "" {
		return errors.New("node: " + lack)
	}
	return nil
}

// runs reports whether the node runs.
func runs(ctx context.Context, layout storage.Layout) bool {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", layout.NodeSocket())
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// checkListeners returns the addresses that the parameters name for listeners and that cannot be listened on now. lacks are those that the core starts without, and tries again.
// Those of the roles count only for a node that is not made yet: the cluster has told it others since, and roles may run on without a core.
func checkListeners(ctx context.Context, parameters *nodev1.Parameters, fresh bool) (problems, lacks []error) {
	add := func(err error, awaitFree bool) {
		switch {
		case err == nil:
		case errors.Is(err, unix.EADDRNOTAVAIL), awaitFree && errors.Is(err, unix.EADDRINUSE):
			lacks = append(lacks, err)
		default:
			problems = append(problems, err)
		}
	}
	add(checkListener(ctx, "network.api_listen in the parameters", parameters.GetNetwork().GetApiListen()), !fresh)
	add(checkListener(ctx, "metrics.listen in the parameters", parameters.GetMetrics().GetListen()), true)
	if !fresh {
		return problems, lacks
	}
	for _, role := range append(parameters.GetBootstrap().GetRoles(), parameters.GetRegister().GetRoles()...) {
		for name, value := range fieldsOf(role.GetConfiguration()) {
			// The name that roles give to what they listen on.
			if text, ok := value.(string); ok && (name == "listen" || strings.HasSuffix(name, "Listen")) {
				if err := checkListener(ctx, name+" in the configuration of the role "+role.GetRole(), text); err != nil {
					problems = append(problems, err)
				}
			}
		}
	}
	return problems, lacks
}

// checkListener returns why nothing can listen on the address that a field names; empty: it names none.
func checkListener(ctx context.Context, field, hostPort string) error {
	if hostPort == "" {
		return nil
	}
	listener, err := address.Listen(ctx, hostPort)
	if err == nil {
		err = listener.Close()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("node: %s is %s, and this machine has no such address now: give it the address, or leave the host out (:PORT) to listen on all: %w", field, hostPort, err)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("node: %s is %s, and another program listens there: stop it (`ss -ltnp` shows it), or name another port: %w", field, hostPort, err)
	default:
		return fmt.Errorf("node: %s is %s, and nothing can listen there: %w", field, hostPort, err)
	}
}

// checkFiles returns the files of the machine that its roles are to replace and that the core could not replace.
func checkFiles(assigned *catalog.Assignment) (problems []error) {
	for _, role := range assigned.Roles {
		var paths []string
		for _, grant := range assigned.Granted(role.GetRole()) {
			if path := grant.GetParameters()["path"]; grant.GetName() == remit.ReplaceFile && path != "" {
				paths = append(paths, path)
			}
		}
		// The grant may name files of several nodes. The configuration then says which is this one's.
		if path, ok := fieldsOf(role.GetConfiguration())["path"].(string); ok && slices.Contains(paths, path) {
			paths = []string{path}
		}
		for _, path := range paths {
			if err := hostfile.Check(path); err != nil {
				problems = append(problems, fmt.Errorf("node: the role %s is granted a file of this machine that it could not change: %w", role.GetRole(), err))
			}
		}
	}
	return problems
}

// fieldsOf returns the fields of a role's configuration; none if it is not an object.
func fieldsOf(configuration string) (fields map[string]any) {
	if json.Unmarshal([]byte(configuration), &fields) != nil {
		return nil
	}
	return fields
}
