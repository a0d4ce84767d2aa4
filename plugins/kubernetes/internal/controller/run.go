package controller

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/credential"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// Endpoint is the name of where the API server is.
const Endpoint = "kubernetes-api"

// consensusUser is under which the registry of the API server is in the store.
const consensusUser = "kubernetes"

// Role is the role, as the plugin offers it.
func Role() role.Role {
	return role.Role{
		Name:          pki.ControllerRole,
		Summary:       "the control plane of Kubernetes: kube-apiserver, kube-controller-manager and kube-scheduler",
		ConsensusUser: consensusUser,
		Requires:      []string{"reeve.consensus.v1", pki.RoleName},
		Grants: []role.Grant{
			// The ports are those of the configuration: of several grants of one name the owner could not put another port in the place of one.
			role.GrantListen(role.AnyPort),
			// Kubelets, webhooks and aggregated APIs are at ports of their own choice.
			role.GrantConnect(role.AnyPort),
			role.GrantLimit(map[string]string{"memory": "4Gi", "processes": "2048", "store-bytes": "2Gi", "store-leases": "20000"}),
		},
		Ports: []role.Port{
			{Name: Endpoint, Protocol: "tcp", Number: 6443},
			{Name: "controller-manager", Protocol: "tcp", Number: 10257},
			{Name: "scheduler", Protocol: "tcp", Number: 10259},
		},
		Configuration: configuration,
		CheckGrants:   checkGrants,
		Run:           run,
	}
}

const (
	// lookStarting is how often the programs are asked how they are while one is not well, and lookWell otherwise.
	lookStarting = 500 * time.Millisecond
	lookWell     = 5 * time.Second
	// grace is how long a program may take to end when it is asked to.
	grace = 10 * time.Second
)

func run(ctx context.Context, host *role.Host) error {
	c, err := configuration.Of(host)
	if err != nil {
		return err
	}
	// The API server speaks to the store by itself: what is needed of it is where it is.
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	at := place{store: store.Socket(), prefix: store.Prefix(), directory: filepath.Join(host.RuntimeDirectory(), "kubernetes")}
	if err := store.Close(); err != nil {
		return err
	}
	conn, err := credential.Dial(host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	c.publish(host)
	plane := &plane{Configuration: c, host: host, pki: kubernetesv1.NewPKIServiceClient(conn), group: process.Group{Show: host.SetValue}}

	// The address is in certificates, arguments and files: with another one everything begins anew.
	networks := host.Network().Watch()
	for ctx.Err() == nil {
		addresses, err := networks.Next(ctx)
		if err != nil {
			return nil
		}
		if len(addresses) == 0 {
			host.Degraded("the node knows no address of its own yet")
			continue
		}
		at.address = addresses[0]
		if err := plane.until(ctx, at, networks.Changed, func() bool {
			now, _ := networks.Latest()
			return len(now) > 0 && now[0] != at.address
		}); err != nil {
			return err
		}
		networks = host.Network().Watch()
	}
	return nil
}

// The values that every instance publishes of how the cluster is configured, for workers. Lists have commas between their elements.
const (
	// ValueServiceCIDRs are the ranges of services, and ValuePodCIDRs those of all pods.
	ValueServiceCIDRs = pki.ServiceCIDRsValue
	ValuePodCIDRs     = "pod-cidrs"
	// ValueClusterDomain is the DNS domain of services and pods, and ValueDNSAddresses are whom pods ask for names; there are none without CoreDNS.
	ValueClusterDomain = "cluster-domain"
	ValueDNSAddresses  = "dns-addresses"
)

// publisher is what shows values to the cluster: a *role.Host is one.
type publisher interface {
	SetValue(name, value string)
}

// publish shows how the cluster is configured.
func (c *Configuration) publish(host publisher) {
	host.SetValue(ValueServiceCIDRs, strings.Join(c.ServiceCIDRs, ","))
	host.SetValue(ValuePodCIDRs, strings.Join(c.PodCIDRs, ","))
	host.SetValue(ValueClusterDomain, c.ClusterDomain)
	var addresses []string
	if c.CoreDNS {
		for _, address := range c.dnsAddresses() {
			addresses = append(addresses, address.String())
		}
	}
	host.SetValue(ValueDNSAddresses, strings.Join(addresses, ","))
}

// until has the control plane work at a place until ctx is done, or something has changed that makes it another place.
func (p *plane) until(ctx context.Context, at place, changed func() <-chan struct{}, moved func() bool) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, at) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-changed():
			if moved() {
				p.host.Logger().Info("the node's first address has changed: the control plane is started anew", "from", at.address)
				leave()
				return <-ended
			}
		}
	}
}

// plane is the control plane.
type plane struct {
	*Configuration
	host *role.Host
	pki  kubernetesv1.PKIServiceClient

	// told is the revision of the trust of Kubernetes, as kubernetes-pki has it.
	told event.Value[uint64]
	// group is the programs.
	group process.Group
}

// program is one of the programs, and how it is asked how it is.
type program struct {
	name      string
	arguments []string
	port      int
	path      string
}

// run has the control plane work at a place until ctx is done.
func (p *plane) run(ctx context.Context, at place) error {
	keeper := credential.Keeper{Host: p.host, Told: &p.told, Fetch: func(ctx context.Context) (credential.Granted, error) { return p.fetch(ctx, p.pki, at) }}
	got, ok := keeper.First(ctx)
	if !ok {
		return nil
	}
	api := newClient(at)
	defer api.close()
	programs := []program{
		{name: "kube-apiserver", arguments: p.apiServer(at), port: p.Port, path: "/readyz?verbose"},
		{name: "kube-controller-manager", arguments: p.controllerManager(at), port: p.ControllerManagerPort, path: "/healthz"},
		{name: "kube-scheduler", arguments: p.scheduler(at), port: p.SchedulerPort, path: "/healthz"},
	}
	// kube-scheduler, too: client-go reads the file of the authorities again only after five minutes.
	keeper.StartAnew = func(ctx context.Context, revision uint64) bool { return p.startAnew(ctx, api, programs, revision) }
	var beside, running sync.WaitGroup
	beside.Go(func() { pki.Follow(ctx, p.pki, p.host.Logger(), &p.told) })
	beside.Go(func() { keeper.Renew(ctx, got) })
	beside.Go(func() { p.sweep(ctx, api) })
	// The API server ends after its clients, which would otherwise only log that they miss it.
	ctxServer, endServer := context.WithCancel(context.WithoutCancel(ctx))
	defer endServer()
	var server sync.WaitGroup
	server.Go(func() { p.keep(ctxServer, programs[0]) })
	started := false
	p.watch(ctx, api, programs, func() {
		if started {
			return
		}
		started = true
		for _, each := range programs[1:] {
			running.Go(func() { p.keep(ctx, each) })
		}
	})
	p.host.SetEndpoint(Endpoint, "")
	running.Wait()
	endServer()
	server.Wait()
	beside.Wait()
	return nil
}

// keep keeps a program running until ctx is done.
func (p *plane) keep(ctx context.Context, of program) {
	p.group.Keep(ctx, process.Program{
		Executable: process.Self, Name: of.name, Arguments: of.arguments, Grace: grace, Log: p.host.Logger().Named(of.name), Environment: environment(p.host.RuntimeDirectory()),
	})
}

// instanceVariable is by what the core knows the processes of an instance, where all roles share a user.
const instanceVariable = "REEVE_INSTANCE"

// environment is all that a program has in its environment.
func environment(directory string) []string {
	all := []string{"TMPDIR=" + directory, "HOME=" + directory}
	if instance, ok := os.LookupEnv(instanceVariable); ok {
		all = append(all, instanceVariable+"="+instance)
	}
	return all
}

// watch looks at how the programs are and tells it, until ctx is done. up is called whenever the API server is well.
func (p *plane) watch(ctx context.Context, api *client, programs []program, up func()) {
	// What is to be in Kubernetes, made once each time that the control plane has begun.
	remain := []func(context.Context, *client) error{
		func(ctx context.Context, api *client) error { return permit(ctx, api, p.Port) },
		p.coreDNS,
	}
	for wait := time.Duration(0); p.group.Wait(ctx, wait); {
		var problems []string
		for n, each := range programs {
			err := p.check(ctx, api, each)
			if n == 0 && err == nil {
				up()
				p.host.SetEndpoint(Endpoint, "https://"+net.JoinHostPort(api.at.address, strconv.Itoa(p.Port)))
				for len(remain) > 0 && err == nil {
					if err = remain[0](ctx, api); err == nil {
						remain = remain[1:]
					}
				}
			}
			if err != nil {
				problems = append(problems, each.name+": "+err.Error())
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case len(problems) == 0:
			p.host.Ready()
			wait = lookWell
		default:
			p.host.Degraded(strings.Join(problems, "; "))
			wait = lookStarting
		}
	}
}

// check says why a program is not well; nil: it is.
func (p *plane) check(ctx context.Context, api *client, of program) error {
	if err := p.group.Check(of.name); err != nil {
		return err
	}
	return api.healthy(ctx, of.port, of.path)
}

// sleep waits, and reports whether ctx is not done then.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
