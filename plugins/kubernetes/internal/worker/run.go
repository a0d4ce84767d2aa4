package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/credential"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// Role is the role, as the plugin offers it.
func Role() role.Role {
	return role.Role{
		Name:    pki.WorkerRole,
		Summary: "runs pods on the node: containerd, kubelet and kube-proxy",
		Grants: []role.Grant{
			// It makes namespaces, mounts, control groups and interfaces, and runs what others bring.
			role.GrantPrivileged(),
			{Name: "watch-operators"},
		},
		StopGrace:     stopGrace,
		Configuration: configuration,
		Run:           run,
	}
}

const (
	// retry is the wait before what failed is tried again.
	retry = time.Second
	// retryWork is the wait before everything is begun anew that could not be.
	retryWork = 5 * time.Second
	// lookMachine is how often a machine that cannot run pods is looked at again.
	lookMachine = 3 * time.Second
	// lookStarting is how often all is looked at while something is not well, and lookWell otherwise.
	lookStarting = 500 * time.Millisecond
	lookWell     = 5 * time.Second
)

func run(ctx context.Context, host *role.Host) error {
	c, err := configuration.Of(host)
	if err != nil {
		return err
	}
	conn, err := credential.Dial(host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	w := &work{
		Configuration: c, host: host, pki: kubernetesv1.NewPKIServiceClient(conn), at: pathsOf(host.NodeID(), host.DataDirectory(), host.RuntimeDirectory()),
	}
	// The environment of a role is empty. This process is no other role.
	if err := os.Setenv("PATH", w.path()); err != nil {
		return err
	}
	// How long the role has is counted from here, whatever it is at.
	defer context.AfterFunc(ctx, func() { w.asked.Set(time.Now()) })()
	var serving sync.WaitGroup
	defer serving.Wait()
	answering, end := context.WithCancel(ctx)
	defer end()
	serving.Go(func() { w.serveOperators(answering) })
	if w.awaitMachine(ctx) {
		w.live(ctx)
	}
	w.leave()
	return nil
}

// live works until ctx is done.
func (w *work) live(ctx context.Context) {
	for ctx.Err() == nil {
		// Certificates, arguments and files contain the node's address and the cluster's configuration. When either changes, everything except the pods is restarted.
		basis, ok := w.awaitBasis(ctx)
		if !ok {
			return
		}
		w.basis = basis
		err := w.until(ctx)
		if errors.Is(err, errRanges) {
			err = w.forgetRanges()
		}
		if err != nil && ctx.Err() == nil {
			w.host.Degraded(err.Error())
			w.host.Logger().Error("pods cannot be run; it is tried again", "error", err)
			sleep(ctx, retryWork)
		}
	}
}

// basis is what the work of a worker is made for.
type basis struct {
	address netip.Addr
	cluster cluster
}

func (b basis) equal(other basis) bool {
	return b.address == other.address && b.cluster.equal(other.cluster)
}

// work is what the role does.
type work struct {
	*Configuration
	basis

	host *role.Host
	pki  kubernetesv1.PKIServiceClient
	at   paths
	// told is the revision of the trust of Kubernetes, as kubernetes-pki has it.
	told event.Value[uint64]
	// asked is when the role was asked to stop.
	asked event.Value[time.Time]
	// fit says that the machine was found to be able to run pods: what it listens at is its own then.
	fit atomic.Bool
	// end ends the work.
	end context.CancelCauseFunc
	// ranges are the ranges of pods with which the pod network was made.
	ranges event.Value[[]netip.Prefix]
	// groups are the control groups of pods.
	groups *machine.Cgroups
	// unregistered is since when the API server has said that there is no Node of this node; zero: it has not.
	unregistered time.Time
	// group is the programs.
	group process.Group
	mu    sync.Mutex
	// parts are where the parts are that were found. They are set once, when the machine is found to be able to run pods.
	parts map[string]string
	// networkProblem is why the pod network is not as it should be; empty: it is.
	networkProblem string
}

// awaitMachine waits until the machine can run pods, and says meanwhile what it lacks. It returns false if ctx was done before that.
func (w *work) awaitMachine(ctx context.Context) bool {
	for told := ""; ; {
		parts := findParts(w.PartsDirectories)
		missing := w.look(ctx)
		if ctx.Err() != nil {
			return false
		}
		if len(missing) == 0 {
			w.mu.Lock()
			w.parts = parts
			w.mu.Unlock()
			w.fit.Store(true)
			return true
		}
		reason := "this machine cannot run pods. " + strings.Join(missing, " ")
		w.host.Blocked(reason)
		if told != reason {
			told = reason
			w.host.Logger().Warn("this machine cannot run pods; it is looked at again", "missing", missing)
		}
		if !sleep(ctx, lookMachine) {
			return false
		}
	}
}

// look is everything that the machine lacks; before the role listens at its ports, also those that are taken.
func (w *work) look(ctx context.Context) []string {
	config := machine.CheckConfig{Parts: partsNeeded, Directories: w.PartsDirectories, State: w.host.DataDirectory()}
	if !w.fit.Load() {
		config.Ports = w.ports()
	}
	return machine.Check(ctx, config)
}

// ports are those that the programs of this node are reached at by itself.
func (w *work) ports() []machine.Port {
	local := netip.MustParseAddr("127.0.0.1")
	return []machine.Port{
		{Network: "tcp", Address: netip.AddrPortFrom(local, uint16(w.APIPort)), Purpose: "programs of the node that look for an API server (apiPort)"},
		{Network: "tcp", Address: netip.AddrPortFrom(local, uint16(w.KubeletHealthPort)), Purpose: "kubelet's health (kubeletHealthPort)"},
		{Network: "tcp", Address: netip.AddrPortFrom(local, uint16(w.ProxyMetricsPort)), Purpose: "kube-proxy's metrics (proxyMetricsPort)"},
	}
}

// lacks is everything that the machine lacks while the role runs, for operators.
func (w *work) lacks(ctx context.Context) []*kubernetesv1.Missing {
	var missing []*kubernetesv1.Missing
	for _, each := range w.look(ctx) {
		missing = append(missing, &kubernetesv1.Missing{What: each})
	}
	return missing
}

// awaitBasis waits until the node has an address that pods of others can reach, and a controller has said what the cluster is configured with. It returns false if ctx was done before that.
func (w *work) awaitBasis(ctx context.Context) (basis, bool) {
	directories, networks := w.host.Directory().Watch(), w.host.Network().Watch()
	for {
		found, problem := w.basisNow()
		if problem == "" {
			return found, true
		}
		w.host.Degraded(problem)
		select {
		case <-ctx.Done():
			return basis{}, false
		case <-directories.Changed():
			_, _ = directories.Latest()
		case <-networks.Changed():
			_, _ = networks.Latest()
		}
	}
}

// basisNow is the basis as it is now, or what there is none for.
func (w *work) basisNow() (basis, string) {
	addresses, _ := w.host.Network().Get()
	if len(addresses) == 0 {
		return basis{}, "the node knows no address of its own yet"
	}
	address, err := netip.ParseAddr(addresses[0])
	switch {
	case err != nil:
		return basis{}, fmt.Sprintf("the node's address %s is none", addresses[0])
	case address.IsLoopback():
		return basis{}, fmt.Sprintf("the node is known by %s, which pods and other nodes cannot reach: give it another address", address)
	}
	directory, _ := w.host.Directory().Get()
	all, ok := clusterOf(directory)
	if !ok {
		return basis{}, "no " + pki.ControllerRole + " has said yet what the cluster is configured with"
	}
	return basis{address: address, cluster: all}, ""
}

// until works until ctx is done, or the node's address or the cluster's configuration has changed.
func (w *work) until(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.end = end
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() {
		directories, networks := w.host.Directory().Watch(), w.host.Network().Watch()
		for {
			if now, problem := w.basisNow(); problem == "" && !now.equal(w.basis) {
				w.host.Logger().Info("the node's address or what the cluster is configured with has changed: everything but the pods is started anew")
				end(errMoved)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-directories.Changed():
				_, _ = directories.Latest()
			case <-networks.Changed():
				_, _ = networks.Latest()
			}
		}
	})
	err := w.work(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errRanges) {
		return cause
	}
	return err
}

// Why the work ends while the role goes on.
var (
	errMoved = errors.New("the node's address or the cluster's configuration has changed")
	// errRanges: the Node was deleted and made again, or somebody has changed it.
	errRanges = errors.New("the node has other pod ranges in Kubernetes now")
)

// work has everything run until ctx is done.
func (w *work) work(ctx context.Context) error {
	keeper := credential.Keeper{Host: w.host, Told: &w.told, Fetch: w.fetch, StartAnew: func(ctx context.Context, _ uint64) bool {
		// Both end side by side, and pods go on.
		for _, ended := range []<-chan struct{}{w.group.Anew(kubelet), w.group.Anew(kubeProxy)} {
			select {
			case <-ended:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}}
	got, ok := keeper.First(ctx)
	if !ok {
		return nil
	}
	balancer, err := newBalancer(port(w.APIPort), w.host.Logger().Named("balancer"))
	if err != nil {
		return fmt.Errorf("the port at which programs of this node reach API servers: %w; apiPort of the configuration says another one", err)
	}
	// What serves the programs ends after them, and after what is said to the API servers when the role goes.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	defer servers.Wait()
	defer endServing()
	servers.Go(func() { balancer.run(serving) })
	servers.Go(func() { w.followServers(serving, balancer) })
	servers.Go(func() { pki.Follow(serving, w.pki, w.host.Logger(), &w.told) })
	servers.Go(func() { keeper.Renew(serving, got) })
	api := newNodeClient(w.at, w.APIPort)
	defer api.close()

	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.programs(ctx, api); err != nil {
		return err
	}
	return nil
}

// followServers tells the balancer where the API servers are.
func (w *work) followServers(ctx context.Context, balancer *balancer) {
	watch := w.host.Directory().Watch()
	for {
		directory, _ := w.host.Directory().Get()
		balancer.set(serversOf(directory))
		if _, err := watch.Next(ctx); err != nil {
			return
		}
	}
}

// programs has containerd, kubelet and kube-proxy run until ctx is done, and tells how they are.
func (w *work) programs(ctx context.Context, api *nodeClient) error {
	runtime, err := w.containerdProgram()
	if err != nil {
		return err
	}
	agent, err := w.kubeletProgram()
	if err != nil {
		return err
	}
	proxy, err := w.proxyProgram()
	if err != nil {
		return err
	}
	w.group.Show = w.host.SetValue
	// containerd ends after kubelet, which would otherwise only log that it misses it; and when the role goes, both after the pods.
	below, endBelow := context.WithCancel(context.WithoutCancel(ctx))
	above, endAbove := context.WithCancel(context.WithoutCancel(ctx))
	var lower, upper, beside sync.WaitGroup
	lower.Go(func() { w.group.Keep(below, runtime) })
	defer func() {
		beside.Wait()
		endAbove()
		upper.Wait()
		if w.leaves() {
			leaving, cancel := w.leaving()
			if err := w.endPods(leaving, w.groups); err != nil {
				w.host.Logger().Warn("not all processes of pods have ended", "error", err)
			}
			cancel()
		}
		endBelow()
		lower.Wait()
	}()
	if !w.importImages(ctx) {
		return nil
	}
	upper.Go(func() { w.group.Keep(above, agent) })
	upper.Go(func() { w.group.Keep(above, proxy) })
	beside.Go(func() { w.network(ctx, api) })
	w.watch(ctx, api)
	if w.host.StopReason() == role.StopRemoved {
		api.drain(w.host.Logger())
	}
	return nil
}

// watch tells how all is until ctx is done.
func (w *work) watch(ctx context.Context, api *nodeClient) {
	uncordoned := false
	for wait := time.Duration(0); w.group.Wait(ctx, wait); {
		problems := w.problems(ctx, api, &uncordoned)
		switch {
		case ctx.Err() != nil:
			return
		case len(problems) == 0:
			w.host.Ready()
			wait = lookWell
		default:
			w.host.Degraded(strings.Join(problems, "; "))
			wait = lookStarting
		}
	}
}

// problems is everything that is not well.
func (w *work) problems(ctx context.Context, api *nodeClient, uncordoned *bool) []string {
	var problems []string
	for name, health := range map[string]string{
		containerd: "", kubelet: "http://" + port(w.KubeletHealthPort) + "/healthz", kubeProxy: fmt.Sprintf("http://%s:%d/livez", bracket(w.address), w.ProxyHealthPort),
	} {
		err := w.group.Check(name)
		if err == nil && health != "" {
			err = healthy(ctx, health)
		}
		if err != nil {
			problems = append(problems, name+": "+err.Error())
		}
	}
	slices.Sort(problems)
	w.mu.Lock()
	if w.networkProblem != "" {
		problems = append(problems, "the pod network: "+w.networkProblem)
	}
	w.mu.Unlock()
	node, err := api.node(ctx)
	w.registered(err)
	if err == nil {
		err = api.liftCordon(ctx, node, uncordoned)
	}
	if err == nil {
		w.checkRanges(node)
	}
	if err == nil {
		err = node.ready()
	}
	if err != nil && len(problems) == 0 {
		problems = append(problems, err.Error())
	}
	return problems
}

// unregisteredTime is for how long the API server may say that there is no such Node before kubelet is started anew.
const unregisteredTime = 30 * time.Second

// registered looks at whether the Node is there: kubelet makes it when it starts, and never again, so that somebody who deletes it would have taken the node away for good.
func (w *work) registered(err error) {
	refused := (*answerError)(nil)
	switch {
	case !errors.As(err, &refused) || refused.status != http.StatusNotFound:
		w.unregistered = time.Time{}
	case w.unregistered.IsZero():
		w.unregistered = time.Now()
	case time.Since(w.unregistered) > unregisteredTime:
		w.host.Logger().Warn("the Node of this node is gone: kubelet is started anew, and makes it")
		w.unregistered = time.Time{}
		w.group.Anew(kubelet)
	}
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
