package pki

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// RoleName is the role's name, and that of its ConsensusUser. Endpoint is the name of what it serves.
const (
	RoleName = "kubernetes-pki"
	Endpoint = "pki"
)

// Role is the role, as the plugin offers it.
func Role() role.Role {
	return role.Role{
		Name:          RoleName,
		Summary:       "keeps the authorities of Kubernetes in the consensus store, and signs for its roles and for operators",
		ConsensusUser: RoleName,
		Requires:      []string{"reeve.consensus.v1"},
		Grants: []role.Grant{
			role.GrantListen(role.AnyPort),
			{Name: "watch-operators"},
		},
		GivesUp: []string{role.GiveUpProcesses},
		Run:     func(ctx context.Context, host *role.Host) error { return run(ctx, host) },
	}
}

const (
	// storeTime is how long one try to read or make the authorities may take, and retry the wait before the next one.
	storeTime = 10 * time.Second
	retry     = time.Second
	// lookEvery is how often the store is asked what it holds, also without a change of it, and lookTime how long that may take.
	lookEvery = 2 * time.Second
	lookTime  = 5 * time.Second
	// directoryTime is how long a call may wait for the directory that it decides by.
	directoryTime = 5 * time.Second
)

func run(ctx context.Context, host *role.Host) error {
	client, err := consensus.Dial(ctx, host)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = client.Close() }()
	keeper := &keeper{kv: client, host: host}
	if err := keeper.await(ctx); err != nil {
		return nil // asked to stop
	}
	listener, err := host.Listen(ctx, Endpoint, role.AllowRoles(ControllerRole, WorkerRole), role.AllowOperators(), role.Protocols("h2"))
	if err != nil {
		return err
	}
	host.Membership() // followed from now on, for calls that it matters to
	host.Directory()
	following, leave := context.WithCancel(ctx)
	var follow sync.WaitGroup
	defer follow.Wait()
	defer leave()
	follow.Go(func() { keeper.follow(following) })
	return serve(ctx, host, listener, &service{
		current: &keeper.current, kv: client, stopping: ctx, log: host.Logger(), now: time.Now,
		directory: func() *hostv1.Directory {
			now, _ := host.Directory().Get()
			return now
		},
		awaitDirectory: func(ctx context.Context) (*hostv1.Directory, error) { return AwaitDirectory(ctx, host) },
	})
}

// serve answers until ctx is done.
func serve(ctx context.Context, host *role.Host, listener *role.Listener, answers kubernetesv1.PKIServiceServer) error {
	server := grpc.NewServer(grpc.Creds(role.Credentials()))
	kubernetesv1.RegisterPKIServiceServer(server, answers)
	ended := make(chan struct{})
	defer func() { <-ended }()
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		server.GracefulStop()
	})
	host.Ready()
	err := server.Serve(listener)
	if stop() {
		close(ended)
		return fmt.Errorf("%s is served no more: %w", Endpoint, err)
	}
	return nil
}
