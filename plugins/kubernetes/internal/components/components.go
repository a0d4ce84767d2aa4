// Package components is the programs of Kubernetes that the plugin's executable is. It is the only package of the repository, beside the main package, that is built of k8s.io/kubernetes: whatever
// imports it takes minutes to compile, and with the race detector as long again.
package components

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// commands are the programs by name.
func commands() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kube-proxy":              proxy.NewProxyCommand,
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
}

// Run is the program that the process was started as, by the base name of arguments[0] or, failing that, by arguments[1]. It returns false if it was started as none, and
// otherwise the status to exit with.
func Run(arguments []string) (status int, ok bool) {
	all := commands()
	for n := range min(len(arguments), 2) {
		name := filepath.Base(arguments[n])
		if all[name] == nil {
			continue
		}
		// The programs read os.Args by themselves, kubectl for its plugins too.
		os.Args = append([]string{name}, arguments[n+1:]...)
		command := all[name]()
		command.SetArgs(os.Args[1:])
		if name == "kubectl" {
			// As kubectl's own main does: what it fails with has been prepared for people.
			if err := cli.RunNoErrOutput(command); err != nil {
				util.CheckErr(err)
			}
			return 0, true
		}
		return cli.Run(command), true
	}
	return 0, false
}
