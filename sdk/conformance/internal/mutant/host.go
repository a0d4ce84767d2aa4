package main

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// again is how long the role waits before it tries something again.
const again = 100 * time.Millisecond

// dial connects to a socket, and again whenever the connection was lost.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: again, Multiplier: 1.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second,
	}))
}

// followMembership follows the node's membership until the process ends, whichever core there is. It closes known when it has heard of it.
func (r *role) followMembership(host hostv1.HostServiceClient, socket string, known chan<- struct{}) {
	for heard := false; ; {
		stream, err := host.WatchMembership(context.Background(), &hostv1.WatchMembershipRequest{})
		for err == nil {
			var told *hostv1.WatchMembershipResponse
			if told, err = stream.Recv(); err != nil {
				break
			}
			r.away.Store(false)
			if hostv1.MembershipState_name[int32(told.GetMembership().GetState())] == "" && fault == faults.FailsNewState {
				r.enter(broken, "there is no such membership")
			}
			if !heard {
				heard = true
				close(known)
			}
		}
		r.away.Store(true)
		switch fault {
		case faults.EndsWithoutCore:
			os.Exit(5)
		case faults.StaysDeaf:
			return
		case faults.SpinsWithoutCore:
			for !exists(socket) { // as fast as it can
			}
		}
		time.Sleep(again)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
