// Upstream is a part of the tests that Kubernetes has of itself (k8s.io/kubernetes/test/e2e), for a cluster that runs. It takes the flags of upstream's e2e.test: --kubeconfig, --ginkgo.focus,
// --ginkgo.dry-run and all others; and --images. What is left out needs cloud providers, storage drivers, other operating systems or special hardware.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	"k8s.io/kubernetes/test/e2e/common"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"
	"k8s.io/kubernetes/test/utils/image"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

// outcome is what a run of Ginkgo reports to in place of a testing.T.
type outcome struct{ failed bool }

// Fail notes that a test has failed.
func (o *outcome) Fail() { o.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	images := flag.Bool("images", false, "print the names of the images that most of the tests use, and end")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "upstream: unexpected arguments %q\n", flag.Args())
		os.Exit(2)
	}
	if *images {
		fmt.Println(image.GetE2EImage(image.Agnhost), image.GetE2EImage(image.BusyBox), image.GetPauseImageName())
		return
	}
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	common.CurrentSuite = common.E2E
	logs.InitLogs()
	defer logs.FlushLogs()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	var o outcome
	ginkgo.RunSpecs(&o, "Kubernetes", suite, reporter)
	if o.failed {
		logs.FlushLogs()
		os.Exit(1)
	}
}
