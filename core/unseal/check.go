package unseal

import (
	"context"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Check returns what a room with these parameters would refuse of the node, its mark and its volume, all of it, as far as that can be known without a key. It changes nothing.
func Check(ctx context.Context, parameters *nodev1.Parameters, layout storage.Layout, mark *params.Mark) (problems []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	if mark == nil {
		mark = params.OpenMark("")
	}
	config := Config{Log: hclog.NewNullLogger(), Storage: &storage.Storage{Layout: layout}, Parameters: parameters, Mark: mark}
	parts, err := partsOf(config)
	if err != nil {
		return []error{err}
	}
	r := &Room{config: config, parts: parts, kind: parts.kind("")}
	r.store = seal.NewStore(layout.Configuration(), parts.sealer)
	removed, err := readDisowned(layout.Disowned())
	if err != nil || removed != nil {
		add(err)
		return problems
	}
	mounts := CheckMounts(parameters, mark)
	add(mounts)
	add(r.look())
	if sealer, ok := r.parts.sealer.(interface{ Check(context.Context) error }); ok {
		add(sealer.Check(ctx))
	}
	if image := parameters.GetVolume().GetFscrypt().GetImage().GetPath(); image != "" {
		at, err := storage.Nearest(filepath.Dir(image))
		if err == nil {
			err = storage.CheckWritable(at)
		}
		add(err)
	}
	if mounts != nil {
		// What is missing is said. What lies below the mount point is nobody's business.
		return problems
	}
	if r.fresh() {
		return append(problems, r.checkFirst(ctx)...)
	}
	add(r.checkMade(ctx))
	return problems
}

// checkFirst returns what makeConfiguration and Format would refuse.
func (r *Room) checkFirst(ctx context.Context) (problems []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	ticket, err := r.ticket()
	add(err)
	used, err := r.parts.consumed()
	add(err)
	if used != nil && err == nil {
		add(used.Check(r.config.Parameters, ticket.GetTicketId()))
	}
	// Both say the same.
	if len(problems) == 0 {
		add(r.config.Mark.Check(r.config.Parameters, ticket.GetTicketId()))
	}
	if ticket != nil {
		clear(ticket.Secret)
	}
	if err := r.checkTarget(ctx, ""); err != nil {
		return append(problems, err)
	}
	if kind, ok := r.kind.(volume.Checker); ok {
		problems = append(problems, kind.CheckFormat()...)
	}
	return problems
}

// checkMade returns what is wrong with the volume of a node that was made, as its sealed configuration says.
func (r *Room) checkMade(ctx context.Context) error {
	head, err := r.store.Head()
	// What keeps it from being read look says. A node that was stopped before its volume was made goes on with that.
	if err != nil || head == nil || !seal.Formatting.Before(head.Phase) {
		return nil
	}
	if head.VolumeKind == storage.Plain {
		return r.config.Storage.OpenVolume(storage.Volume{Kind: head.VolumeKind, ClusterID: head.ClusterID, NodeID: head.NodeID}, false)
	}
	state, err := r.kind.State(ctx)
	if err == nil && state == volume.Absent {
		err = r.noVolume(head.NodeID, head.ClusterID, head.Location)
	}
	return err
}
