package worker

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/controller"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// nodeLabel is the label by which the controllers know a Node of Kubernetes as a node of the cluster.
const nodeLabel = "reeve.dev/node"

// shims is the control group, below the node's, of the processes that hold containers.
const shims = "shims"

// root is the directory below which is what outlives an instance.
const root = "reeve-kubernetes"

// paths are where things are.
type paths struct {
	node string
	// data survives a reboot, state survives a restart of the role, and run survives neither.
	data, state, run string
}

func pathsOf(node, data, run string) paths {
	return paths{node: node, data: filepath.Join(data, "worker"), state: filepath.Join("/run", root, node), run: filepath.Join(run, "kubernetes")}
}

func (p paths) socket() string              { return filepath.Join(p.state, "containerd.sock") }
func (p paths) containerdRoot() string      { return filepath.Join(p.data, "containerd") }
func (p paths) containerdState() string     { return filepath.Join(p.state, "containerd") }
func (p paths) kubelet() string             { return filepath.Join(p.data, "kubelet") }
func (p paths) logs() string                { return filepath.Join(p.data, "logs") }
func (p paths) temporary() string           { return filepath.Join(p.state, "tmp") }
func (p paths) rangesFile() string          { return filepath.Join(p.state, "pod-cidrs") }
func (p paths) cni() string                 { return filepath.Join(p.state, "cni") }
func (p paths) ipam() string                { return filepath.Join(p.state, "ipam") }
func (p paths) sysctls() string             { return filepath.Join(p.data, "sysctls.json") }
func (p paths) file(name string) string     { return filepath.Join(p.run, name) }
func (p paths) key(of string) string        { return p.file(of + ".key") }
func (p paths) crt(of string) string        { return p.file(of + ".crt") }
func (p paths) kubeconfig(of string) string { return p.file(of + ".kubeconfig") }

// valuePodCIDRs is the published value by which a worker says which ranges its pods have, as a controller does of all pods.
const valuePodCIDRs = controller.ValuePodCIDRs

// cluster is what all nodes agree upon: the controllers say it.
type cluster struct {
	services, pods []netip.Prefix
	domain         string
	dns            []string
}

func (c cluster) equal(other cluster) bool {
	return slices.Equal(c.services, other.services) && slices.Equal(c.pods, other.pods) && c.domain == other.domain && slices.Equal(c.dns, other.dns)
}

// clusterOf reads it in the directory; false: no controller has said it. Of several that say different things, as happens while their configuration is changed one after another, the one of the first node
// counts: all workers see the same one.
func clusterOf(directory *hostv1.Directory) (cluster, bool) {
	first, found := cluster{}, ""
	for _, node := range directory.GetNodes() {
		for _, instance := range node.GetRoles() {
			values := instance.GetValues()
			if instance.GetRole() != pki.ControllerRole || values[controller.ValueClusterDomain] == "" || found != "" && found < node.GetNodeId() {
				continue
			}
			services, pods := prefixes(values[controller.ValueServiceCIDRs]), prefixes(values[controller.ValuePodCIDRs])
			if len(services) == 0 || len(pods) == 0 {
				continue
			}
			first, found = cluster{services: services, pods: pods, domain: values[controller.ValueClusterDomain], dns: split(values[controller.ValueDNSAddresses])}, node.GetNodeId()
		}
	}
	return first, found != ""
}

// serversOf are the API servers, host:port, sorted: those of nodes that are healthy, and if there are none, all.
func serversOf(directory *hostv1.Directory) []string {
	var well, ill []string
	for _, node := range directory.GetNodes() {
		for _, instance := range node.GetRoles() {
			if instance.GetRole() != pki.ControllerRole {
				continue
			}
			for _, endpoint := range instance.GetEndpoints() {
				address, ok := strings.CutPrefix(endpoint.GetAddress(), "https://")
				switch {
				case endpoint.GetName() != controller.Endpoint || !ok:
				case node.GetHealthy():
					well = append(well, address)
				default:
					ill = append(ill, address)
				}
			}
		}
	}
	if len(well) == 0 {
		well = ill
	}
	slices.Sort(well)
	return well
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func prefixes(text string) []netip.Prefix {
	var all []netip.Prefix
	for _, each := range split(text) {
		prefix, err := netip.ParsePrefix(each)
		if err != nil {
			return nil
		}
		all = append(all, prefix.Masked())
	}
	return all
}

func texts(all []netip.Prefix) string {
	var list []string
	for _, each := range all {
		list = append(list, each.String())
	}
	return strings.Join(list, ",")
}
