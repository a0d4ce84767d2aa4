package worker

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

// Configuration is the role's configuration. What all nodes have to agree upon is not here: the controllers say it.
type Configuration struct {
	PartsDirectories  []string          `json:"partsDirectories" doc:"where containerd, runc, the CNI plugins and the image of CoreDNS are looked for, the first one first" check:"min=1,max=32"`
	APIPort           int               `json:"apiPort" doc:"the TCP port on 127.0.0.1 at which programs of this node reach any API server" check:"min=1,max=65535"`
	KubeletPort       int               `json:"kubeletPort" doc:"the TCP port of kubelet" check:"min=1,max=65535"`
	KubeletHealthPort int               `json:"kubeletHealthPort" doc:"the TCP port on 127.0.0.1 at which kubelet says how it is" check:"min=1,max=65535"`
	ProxyHealthPort   int               `json:"proxyHealthPort" doc:"the TCP port at which kube-proxy says how it is, for load balancers" check:"min=1,max=65535"`
	ProxyMetricsPort  int               `json:"proxyMetricsPort" doc:"the TCP port on 127.0.0.1 of kube-proxy's metrics" check:"min=1,max=65535"`
	Labels            map[string]string `json:"labels" doc:"labels that the node has in Kubernetes"`
	Taints            []string          `json:"taints" doc:"taints with which the node comes to Kubernetes, key=value:Effect or key:Effect" check:"max=64"`
	MaxPods           int               `json:"maxPods" doc:"how many pods may run on the node" check:"min=1,max=1000"`
	ResolvConf        string            `json:"resolvConf" doc:"the resolver configuration that pods of the DNS policy Default are given (default: the machine's, or that of systemd-resolved behind it)" check:"max=4096"`
	FeatureGates      map[string]bool   `json:"featureGates" doc:"feature gates of Kubernetes, for kubelet and kube-proxy"`
	KubeletArguments  []string          `json:"kubeletArguments" doc:"further arguments of kubelet, --name=value each" check:"max=64"`
	ProxyArguments    []string          `json:"proxyArguments" doc:"further arguments of kube-proxy, --name=value each" check:"max=64"`
}

var configuration = role.Configure(func() *Configuration {
	return &Configuration{
		PartsDirectories: []string{
			"/usr/local/lib/reeve/kubernetes", "/usr/lib/cni", "/opt/cni/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
		},
		APIPort: 6444, KubeletPort: 10250, KubeletHealthPort: 10248, ProxyHealthPort: 10256, ProxyMetricsPort: 10249, MaxPods: 110,
	}
}, func(c *Configuration, problems *role.ConfigurationError) { c.check(problems) })

// effects are what a taint does.
var effects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

func (c *Configuration) check(problems *role.ConfigurationError) {
	for n, directory := range c.PartsDirectories {
		if !filepath.IsAbs(directory) || filepath.Clean(directory) != directory {
			problems.Add(fmt.Sprintf("/partsDirectories/%d", n), "%q is not an absolute path in its shortest form", directory)
		}
	}
	ports := map[int]string{}
	for _, port := range []struct {
		path   string
		number int
	}{
		{"/apiPort", c.APIPort}, {"/kubeletPort", c.KubeletPort}, {"/kubeletHealthPort", c.KubeletHealthPort}, {"/proxyHealthPort", c.ProxyHealthPort},
		{"/proxyMetricsPort", c.ProxyMetricsPort},
	} {
		if other := ports[port.number]; other != "" {
			problems.Add(port.path, "%d is the port of %s too", port.number, other)
		}
		ports[port.number] = port.path
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		value := c.Labels[key]
		switch {
		case !labelKey(key) || value != "" && !labelName(value):
			problems.Add("/labels", "%q=%q is no label of Kubernetes", key, value)
		case key == nodeLabel:
			problems.Add("/labels", "%s is set by the role itself", key)
		}
	}
	for n, text := range c.Taints {
		if _, err := taintOf(text); err != nil {
			problems.Add(fmt.Sprintf("/taints/%d", n), "%s", err)
		}
	}
	if c.ResolvConf != "" && !filepath.IsAbs(c.ResolvConf) {
		problems.Add("/resolvConf", "%q is not an absolute path", c.ResolvConf)
	}
	for name := range c.FeatureGates {
		if name == "" || strings.ContainsAny(name, ",= \n") {
			problems.Add("/featureGates", "%q is not the name of a feature gate", name)
		}
	}
	// An argument that is given twice would mean the last one, and a file of configuration loses against an argument.
	for path, list := range map[string][2][]string{
		"/kubeletArguments": {c.KubeletArguments, kubeletOwn}, "/proxyArguments": {c.ProxyArguments, proxyOwn},
	} {
		for n, argument := range list[0] {
			at := fmt.Sprintf("%s/%d", path, n)
			switch name, _, ok := strings.Cut(argument, "="); {
			case !ok || !strings.HasPrefix(name, "--") || len(name) < 3 || strings.ContainsAny(name, " \n"):
				problems.Add(at, "%q: want --name=value", argument)
			case slices.Contains(list[1], name):
				problems.Add(at, "%s is set by the role itself", name)
			}
		}
	}
}

// taint is what keeps pods from a node, in Kubernetes' own form.
type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

func taintOf(text string) (taint, error) {
	what, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(what, "=")
	if !ok || !labelKey(key) || value != "" && !labelName(value) || !slices.Contains(effects, effect) {
		return taint{}, fmt.Errorf("%q: want key=value:Effect or key:Effect, with one of %s", text, strings.Join(effects, ", "))
	}
	return taint{Key: key, Value: value, Effect: effect}, nil
}

// labelKey reports whether a text is a name of Kubernetes, after a DNS name and a slash or alone.
func labelKey(key string) bool {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return labelName(prefix)
	}
	for label := range strings.SplitSeq(prefix, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
	}
	return len(prefix) <= 253 && labelName(name)
}

func labelName(name string) bool {
	const edge = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 63 && strings.Trim(name, edge+"-_.") == "" && strings.Contains(edge, name[:1]) && strings.Contains(edge, name[len(name)-1:])
}

// labels are the labels of the node, as an argument of kubelet has them.
func (c *Configuration) labels(node string) string {
	all := []string{nodeLabel + "=" + node}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, key+"="+c.Labels[key])
	}
	return strings.Join(all, ",")
}

// port is a port of this machine as a URL or a listener has it.
func port(number int) string { return "127.0.0.1:" + strconv.Itoa(number) }
