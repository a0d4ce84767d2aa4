package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
)

// The programs by their names, which are those of the published values too.
const (
	containerd = "containerd"
	kubelet    = "kubelet"
	kubeProxy  = "kube-proxy"
)

const (
	// grace is how long a program may take to end when it is asked to.
	grace = 5 * time.Second
	// instanceVariable is by what the core knows the processes of an instance. The programs of Kubernetes have it. containerd has not: it would give it to what must outlive the instance.
	instanceVariable = "REEVE_INSTANCE"
)

// containerdProgram is containerd with its configuration, which is written.
func (w *work) containerdProgram() (process.Program, error) {
	text := w.containerdConfiguration()
	file := w.at.file("containerd.toml")
	if err := renameio.WriteFile(file, []byte(text), 0o600, renameio.WithTempDir(filepath.Dir(file))); err != nil {
		return process.Program{}, err
	}
	for _, directory := range []string{w.at.containerdRoot(), w.at.containerdState(), w.at.cni(), w.at.temporary()} {
		if err := os.MkdirAll(directory, 0o711); err != nil {
			return process.Program{}, err
		}
	}
	return process.Program{
		Executable: w.parts[containerd], Name: containerd, Arguments: []string{"--config", file}, Grace: grace, Log: w.host.Logger().Named(containerd),
		// Those who hold containers inherit it, and outlive the instance with its directory.
		Environment: []string{"PATH=" + w.path(), "HOME=" + w.at.temporary(), "TMPDIR=" + w.at.temporary()},
	}, nil
}

// path is where programs look for others: the directories of the parts, and of those that Kubernetes' own programs call, such as nft and mount.
func (w *work) path() string {
	return strings.Join(append(w.PartsDirectories[:len(w.PartsDirectories):len(w.PartsDirectories)], "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
}

// containerdConfiguration is containerd's, version 3. Registries and what else is usual are left to a file of the operator's: /etc/containerd/certs.d is where containerd looks for registries anyway.
func (w *work) containerdConfiguration() string {
	var text strings.Builder
	line := func(format string, arguments ...any) { fmt.Fprintf(&text, format+"\n", arguments...) }
	line("version = 3")
	line("root = %q", w.at.containerdRoot())
	line("state = %q", w.at.containerdState())
	line("temp = %q", w.at.temporary())
	line("oom_score = 0")
	// Without it kubelet cannot work. It fails to load where the kernel has no inotify instance left for it, and containerd would go on without it for ever: now it ends, and is started again.
	line("required_plugins = ['io.containerd.grpc.v1.cri']")
	// NRI listens at a path that is the same for all containerds of the machine, and nothing here uses it. The others want what there is not.
	line("disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp']")
	line("[grpc]")
	line("  address = %q", w.at.socket())
	// Its directory bin comes first in the PATH of containerd: by default it is the machine's /opt/containerd.
	line("[plugins.'io.containerd.internal.v1.opt']")
	line("  path = %q", filepath.Join(w.at.data, "opt"))
	line("[plugins.'io.containerd.cri.v1.images']")
	line("  snapshotter = 'overlayfs'")
	line("  [plugins.'io.containerd.cri.v1.images'.pinned_images]")
	line("    sandbox = %q", image.PauseReference)
	line("  [plugins.'io.containerd.cri.v1.images'.registry]")
	line("    config_path = '/etc/containerd/certs.d'")
	line("[plugins.'io.containerd.cri.v1.runtime']")
	line("  netns_mounts_under_state_dir = true")
	line("  disable_apparmor = %t", !apparmor())
	line("  restrict_oom_score_adj = %t", !mayLowerOOMScore())
	line("  [plugins.'io.containerd.cri.v1.runtime'.containerd]")
	line("    default_runtime_name = 'runc'")
	line("    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]")
	line("      runtime_type = 'io.containerd.runc.v2'")
	line("      runtime_path = %q", w.parts[shim])
	line("      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]")
	line("        BinaryName = %q", w.parts[runc])
	line("        Root = %q", filepath.Join(w.at.state, "runc"))
	line("        ShimCgroup = %q", filepath.Join(w.groups.Path(), shims))
	line("        SystemdCgroup = false")
	line("  [plugins.'io.containerd.cri.v1.runtime'.cni]")
	line("    bin_dirs = [%q, %q, %q]", filepath.Dir(w.parts[ptp]), filepath.Dir(w.parts["host-local"]), filepath.Dir(w.parts["portmap"]))
	line("    conf_dir = %q", w.at.cni())
	line("    use_internal_loopback = true")
	return text.String()
}

// apparmor reports whether the kernel confines by AppArmor and the program is there that containerd loads profiles by.
func apparmor() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !bytes.HasPrefix(enabled, []byte("Y")) {
		return false
	}
	_, err = os.Stat("/sbin/apparmor_parser")
	return err == nil
}

// kubeletOwn and proxyOwn are the arguments that the role says itself.
var (
	kubeletOwn = []string{"--config", "--config-dir", "--kubeconfig", "--root-dir", "--hostname-override", "--node-ip", "--node-labels", "--cert-dir", "--feature-gates", "--container-runtime-endpoint", "--cgroup-root", "--bootstrap-kubeconfig"}
	proxyOwn   = []string{"--config", "--kubeconfig", "--hostname-override", "--feature-gates", "--proxy-mode"}
)

// kubeletProgram is kubelet with its configuration, which is written.
func (w *work) kubeletProgram() (process.Program, error) {
	var taints []taint
	for _, text := range w.Taints {
		each, err := taintOf(text)
		if err != nil {
			return process.Program{}, err
		}
		taints = append(taints, each)
	}
	file := w.at.file("kubelet.json")
	if err := writeJSON(file, map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": w.address.String(), "port": w.KubeletPort, "readOnlyPort": 0, "healthzBindAddress": "127.0.0.1", "healthzPort": w.KubeletHealthPort,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": w.at.file(fileClientsCA)},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   w.at.crt(nameServing), "tlsPrivateKeyFile": w.at.key(nameServing), "tlsMinVersion": "VersionTLS12",
		"clusterDNS": w.cluster.dns, "clusterDomain": w.cluster.domain, "resolvConf": w.resolvConf(),
		"containerRuntimeEndpoint": "unix://" + w.at.socket(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": w.groups.Path(), "failCgroupV1": false,
		// Swap is the machine's business: no pod uses it, and kubelet works beside it.
		"failSwapOn": false,
		// The role sets the sysctls of the kernel that kubelet wants, and puts them back when it goes.
		"protectKernelDefaults": true, "makeIPTablesUtilChains": false,
		"podLogsDir": w.at.logs(), "volumePluginDir": filepath.Join(w.at.data, "volume-plugins"), "staticPodPath": "",
		"maxPods": w.MaxPods, "registerWithTaints": taints, "seccompDefault": true, "serializeImagePulls": false,
		"featureGates": w.FeatureGates, "enableProfilingHandler": false, "enableDebugFlagsHandler": false,
	}); err != nil {
		return process.Program{}, err
	}
	for _, directory := range []string{w.at.kubelet(), w.at.logs()} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return process.Program{}, err
		}
	}
	program := w.program(kubelet, append([]string{
		"--config=" + file, "--kubeconfig=" + w.at.kubeconfig(nameKubelet), "--root-dir=" + w.at.kubelet(), "--cert-dir=" + filepath.Join(w.at.kubelet(), "pki"),
		"--hostname-override=" + w.at.node, "--node-ip=" + w.address.String(), "--node-labels=" + w.labels(w.at.node),
	}, w.KubeletArguments...))
	// kubelet does not start if they are not as it wants them.
	program.Before = w.setSysctls
	return program, nil
}

// proxyProgram is kube-proxy with its configuration, which is written.
func (w *work) proxyProgram() (process.Program, error) {
	file := w.at.file("kube-proxy.json")
	if err := writeJSON(file, map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"clientConnection": map[string]any{"kubeconfig": w.at.kubeconfig(nameProxy)},
		"mode":             "nftables", "clusterCIDR": texts(w.cluster.pods), "hostnameOverride": w.at.node, "bindAddress": w.address.String(),
		"healthzBindAddress": fmt.Sprintf("%s:%d", bracket(w.address), w.ProxyHealthPort), "metricsBindAddress": port(w.ProxyMetricsPort),
		// 0: what the machine has is left as it is.
		"conntrack":    map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"featureGates": w.FeatureGates,
	}); err != nil {
		return process.Program{}, err
	}
	return w.program(kubeProxy, append([]string{"--config=" + file}, w.ProxyArguments...)), nil
}

// program is one of Kubernetes' own, which are the plugin's executable.
func (w *work) program(name string, arguments []string) process.Program {
	environment := []string{"PATH=" + w.path(), "HOME=" + w.at.run, "TMPDIR=" + w.at.run}
	if instance, ok := os.LookupEnv(instanceVariable); ok {
		environment = append(environment, instanceVariable+"="+instance)
	}
	return process.Program{Executable: process.Self, Name: name, Arguments: arguments, Grace: grace, Log: w.host.Logger().Named(name), Environment: environment}
}

func writeJSON(file string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o600, renameio.WithTempDir(filepath.Dir(file)))
}

// stubResolver is where systemd-resolved listens: nothing is there for a pod, which has loopback addresses of its own. behindStub is what it asks itself.
const (
	machineResolver = "/etc/resolv.conf"
	stubResolver    = "127.0.0.53"
	behindStub      = "/run/systemd/resolve/resolv.conf"
)

// resolvConf is the resolver configuration for pods that have that of the machine, CoreDNS among them.
func (w *work) resolvConf() string {
	if w.ResolvConf != "" {
		return w.ResolvConf
	}
	text, err := os.ReadFile(machineResolver)
	if err == nil && bytes.Contains(text, []byte(stubResolver)) {
		if _, err := os.Stat(behindStub); err == nil {
			return behindStub
		}
	}
	return machineResolver
}
