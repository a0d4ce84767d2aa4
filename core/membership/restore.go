package membership

import (
	"context"
	"strings"
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

// thenTry returns the message of a problem that does not pass by itself, with how it is tried again, for people. One that says itself how to restore may want other arguments, and stays as it is.
func (r *Room) thenTry(message string) string {
	switch {
	case !r.restores():
		return message + "; then start reeved again"
	case strings.Contains(message, "`reeved restore`"):
		return message
	}
	return message + "; then run `reeved restore` again, with the same arguments"
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
	switch answer, is := status.FromError(err); {
	case err == nil:
		r.hint.Set("")
	case !is && ctx.Err() == nil:
		// It is the file, and no answer of the role: the file was replaced, say, or cannot be read any more.
		r.fail(provider, true, err.Error())
	case answer.Code() == codes.InvalidArgument, answer.Code() == codes.FailedPrecondition, answer.Code() == codes.Unimplemented:
		r.fail(provider, true, "cannot restore the consensus store: "+answer.Message())
	default:
		r.hint.Set("the role that provides it does not take the snapshot yet: " + answer.Message())
	}
	return err
}

// awaitFormed waits until the store is formed, and shows what that waits for.
func (r *Room) awaitFormed(ctx context.Context) error {
	formed, hints := r.formed.Watch(), r.hint.Watch()
	for {
		reason := "forming the consensus store" + r.ofSnapshot()
		if hint, _ := hints.Latest(); hint != "" {
			reason += ": " + hint
		}
		if err := r.machine.to(Bootstrapping, reason); err != nil {
			return err
		}
		if done, _ := formed.Latest(); done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-formed.Changed():
		case <-hints.Changed():
		}
	}
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
