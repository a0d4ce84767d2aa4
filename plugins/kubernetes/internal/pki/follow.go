package pki

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/sdk/event"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// Follow sets told to the revision of the trust of Kubernetes, and again whenever that has changed, until ctx is done. It is for roles that work with certificates of Kubernetes: they ask for new ones
// when it is another revision than that of the trust that they were given with theirs.
func Follow(ctx context.Context, client kubernetesv1.PKIServiceClient, log hclog.Logger, told *event.Value[uint64]) {
	for ctx.Err() == nil {
		stream, err := client.WatchTrust(ctx, &kubernetesv1.WatchTrustRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var response *kubernetesv1.WatchTrustResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			if revision := response.GetTrust().GetRevision(); revision != 0 {
				told.Set(revision)
			}
		}
		if ctx.Err() == nil {
			log.Debug("the stream from "+RoleName+" ended and is opened again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}
