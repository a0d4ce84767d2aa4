package controller

import (
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// place is where a control plane runs.
type place struct {
	// address is the node's first address.
	address string
	// store is the Unix socket of the consensus store, and prefix that of the keys there.
	store, prefix string
	// directory is where the credentials are.
	directory string
}

// loopback reports whether the node is known by an address that leads nowhere from another one: a dev directory is.
func (p place) loopback() bool {
	address, err := netip.ParseAddr(p.address)
	return err == nil && address.IsLoopback()
}

func (p place) file(name string) string { return filepath.Join(p.directory, name) }

// The names of the files of credentials.
const (
	fileServersCA     = "servers-ca.crt"
	fileClientsCA     = "clients-ca.crt"
	fileAggregatorsCA = "aggregators-ca.crt"
	fileAccountsKey   = "service-accounts.key"
	fileAccounts      = "service-accounts.pub"
	nameServing       = "serving"
	nameToKubelets    = "kube-apiserver-to-kubelets"
	nameToAggregated  = "kube-apiserver-to-aggregated"
	nameManager       = "kube-controller-manager"
	nameScheduler     = "kube-scheduler"
	nameSupervisor    = "supervisor"
)

func certificate(name string) string { return name + ".crt" }
func key(name string) string         { return name + ".key" }
func kubeconfig(name string) string  { return name + ".kubeconfig" }

// apiServer are the arguments of kube-apiserver.
func (c *Configuration) apiServer(at place) []string {
	return slices.Concat(c.ownAPIServer(at), c.gates(), c.APIServerArguments)
}

func (c *Configuration) ownAPIServer(at place) []string {
	arguments := []string{
		// etcd confines the role to its prefix, compacts by itself, and asks the kernel who is at the other end of the socket.
		"--etcd-servers=unix://" + at.store,
		"--etcd-prefix=" + path.Join(at.prefix, "registry"),
		"--etcd-compaction-interval=0",
		// Events are put on a lease, and each counts what etcd checks of those on it already: by default those of a minute.
		"--lease-reuse-duration-seconds=5",
		"--bind-address=" + at.address,
		"--advertise-address=" + at.address,
		"--secure-port=" + strconv.Itoa(c.Port),
		"--tls-cert-file=" + at.file(certificate(nameServing)),
		"--tls-private-key-file=" + at.file(key(nameServing)),
		"--tls-min-version=VersionTLS12",
		"--client-ca-file=" + at.file(fileClientsCA),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--requestheader-client-ca-file=" + at.file(fileAggregatorsCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + at.file(certificate(nameToAggregated)),
		"--proxy-client-key-file=" + at.file(key(nameToAggregated)),
		"--kubelet-client-certificate=" + at.file(certificate(nameToKubelets)),
		"--kubelet-client-key=" + at.file(key(nameToKubelets)),
		"--kubelet-certificate-authority=" + at.file(fileServersCA),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + c.ClusterDomain,
		"--service-account-key-file=" + at.file(fileAccounts),
		"--service-account-signing-key-file=" + at.file(fileAccountsKey),
		"--service-cluster-ip-range=" + strings.Join(c.ServiceCIDRs, ","),
		"--allow-privileged=true",
		"--profiling=false",
	}
	if at.loopback() {
		// The endpoints of a service may not be loopback addresses: without this the API server would try, and fail, every ten seconds.
		arguments = append(arguments, "--endpoint-reconciler-type=none")
	}
	return arguments
}

// controllerManager are the arguments of kube-controller-manager.
func (c *Configuration) controllerManager(at place) []string {
	return slices.Concat(c.ownControllerManager(at), c.gates(), c.ControllerManagerArguments)
}

func (c *Configuration) ownControllerManager(at place) []string {
	arguments := append(c.client(at, nameManager, c.ControllerManagerPort),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+at.file(fileAccountsKey),
		"--root-ca-file="+at.file(fileServersCA),
		"--service-cluster-ip-range="+strings.Join(c.ServiceCIDRs, ","),
		"--cluster-cidr="+strings.Join(c.PodCIDRs, ","),
		"--allocate-node-cidrs=true",
		"--flex-volume-plugin-dir="+at.file("volume-plugins"),
	)
	if bits, ok := c.nodeBits6(); ok {
		arguments = append(arguments, "--node-cidr-mask-size-ipv6="+strconv.Itoa(bits))
	}
	return arguments
}

// nodeBits6 is how large the range of IPv6 is that a node gets for its pods, where Kubernetes' own choice of a /64 is not to be had out of the range of all pods: it may divide that into 65536 at most.
func (c *Configuration) nodeBits6() (bits int, ok bool) {
	for _, text := range c.PodCIDRs {
		switch prefix, err := netip.ParsePrefix(text); {
		case err != nil || prefix.Addr().Is4():
		case prefix.Bits() < 48:
			return prefix.Bits() + 16, true
		case prefix.Bits() > 64:
			return min(prefix.Bits()+8, 124), true
		}
	}
	return 0, false
}

// scheduler are the arguments of kube-scheduler.
func (c *Configuration) scheduler(at place) []string {
	return slices.Concat(c.ownScheduler(at), c.gates(), c.SchedulerArguments)
}

func (c *Configuration) ownScheduler(at place) []string {
	return c.client(at, nameScheduler, c.SchedulerPort)
}

// client are the arguments of a program that is a client of the API server.
func (c *Configuration) client(at place, name string, port int) []string {
	config := at.file(kubeconfig(name))
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--client-ca-file=" + at.file(fileClientsCA), "--requestheader-client-ca-file=" + at.file(fileAggregatorsCA),
		"--bind-address=" + at.address, "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + at.file(certificate(nameServing)), "--tls-private-key-file=" + at.file(key(nameServing)),
		"--leader-elect=true", "--profiling=false",
	}
}

// url is where a program serves.
func (p place) url(port int) string {
	return "https://" + net.JoinHostPort(p.address, strconv.Itoa(port))
}
