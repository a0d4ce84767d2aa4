package membership

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const (
	// callBound bounds a call to the role that provides the store, or the cluster API.
	callBound = time.Minute
	// restoreBound bounds it while a snapshot is restored, which may be some GiB on a slow disk.
	restoreBound = time.Hour
)

// restores says whether the node's cluster comes out of a snapshot.
func (r *Room) restores() bool { return r.config.Restore != nil }

func (r *Room) attemptBound() time.Duration {
	if r.restores() {
		return restoreBound
	}
	return callBound
}

// making is what is done to the cluster, for people.
func (r *Room) making() string {
	if r.restores() {
		return "restore"
	}
	return "bootstrap"
}

// then is how a problem that does not pass by itself is tried again, for people.
func (r *Room) then() string {
	if r.restores() {
		return "; then run `reeved restore` again, with the same arguments"
	}
	return "; then start reeved again"
}

func (r *Room) ofSnapshot() string {
	if r.restores() {
		return " of the snapshot"
	}
	return ""
}

// send sends the snapshot to the role that provides the store.
func (r *Room) send(ctx context.Context, provider roles.Provider) error {
	err := r.config.Restore(ctx, consensusv1.NewConsensusServiceClient(provider.Conn))
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		r.fail(provider, true, "cannot restore the consensus store: "+status.Convert(err).Message())
	}
	return err
}

// makeCluster makes the cluster, or takes the node into the one that the snapshot holds.
func (r *Room) makeCluster(ctx context.Context, provider roles.Provider) (*clusterv1.BootstrapResponse, error) {
	client := clusterv1.NewBootstrapServiceClient(provider.Conn)
	if !r.restores() {
		return client.Bootstrap(ctx, r.config.Bootstrap)
	}
	response, err := client.Restore(ctx, &clusterv1.RestoreRequest{Node: r.config.Bootstrap})
	return &clusterv1.BootstrapResponse{CaCertificates: response.GetCaCertificates(), NodeSvid: response.GetNodeSvid()}, err
}
