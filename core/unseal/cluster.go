package unseal

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ErrDisowned says that the node was removed from its cluster, as it heard when it asked for its key. Room.Disowned has the reason.
var ErrDisowned = errors.New("unseal: the node was removed from its cluster, and its volume is not opened any more")

// joinOf asks the cluster's curators by the join key.
func joinOf(log hclog.Logger) func(context.Context, *seal.Configuration, *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
	return func(ctx context.Context, c *seal.Configuration, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
		client := enrol.New(enrol.Config{
			Log: log, ClusterID: c.ClusterID, NodeID: c.NodeID(), Key: c.JoinKey, Pins: c.Registration.CAPins, Curators: func() []string { return c.Registration.Curators },
		})
		return client.Join(ctx, request)
	}
}

// clusterSource asks the curators of the cluster, which has its half of the key of every node that it took in.
type clusterSource struct {
	room *Room
	// configuration is the node's, of which the keys of the volume are not looked at.
	configuration seal.Configuration
}

func (clusterSource) name() string { return sourceCluster }

func (s clusterSource) seek(ctx context.Context, tell tell, try func(*found) error) {
	if !allows(s.configuration.CUKSources, sourceCluster) {
		tell(off, notAllowed)
		return
	}
	tell(waiting, "a curator of the cluster")
	// What is refused may be allowed again at any time, so there is no end to it.
	again := func(err error) {
		var refused *enrol.RefusedError
		if errors.As(err, &refused) {
			tell(failed, "the cluster does not give the key: "+refused.Message)
			return
		}
		tell(waiting, "a curator of the cluster; tried again: "+err.Error())
	}
	_ = patiently(ctx, again, func() error {
		var cuk *keys.Secret
		err := s.room.take(checkpoint.GetCUK, func() (err error) {
			cuk, err = s.join(ctx)
			return err
		})
		var removed *enrol.RemovedError
		switch {
		case errors.As(err, &removed):
			err = try(&found{source: sourceCluster, removed: removed.Reason})
		case err == nil:
			err = try(&found{source: sourceCluster, cuk: cuk})
		}
		if err == nil || errors.Is(err, ErrDisowned) {
			return nil
		}
		return &againError{err}
	})
}

func (s clusterSource) join(ctx context.Context) (*keys.Secret, error) {
	incarnation, err := s.room.Raise()
	if err != nil {
		return nil, err
	}
	answer, err := s.room.parts.join(ctx, &s.configuration, &clusterv1.JoinRequest{Incarnation: incarnation})
	if err != nil {
		return nil, err
	}
	defer clear(answer.GetCuk())
	cuk, err := keys.SecretOf(answer.GetCuk())
	if err != nil {
		return nil, fmt.Errorf("the cluster's half of the key as the curator sent it: %w", err)
	}
	return cuk, nil
}
