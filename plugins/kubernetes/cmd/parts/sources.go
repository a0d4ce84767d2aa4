package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
)

// source is a module that parts are built of.
type source struct {
	module, version string
	// sum is the checksum of the module's files, as in a go.sum.
	sum string
}

// part is what is built at once, of one module.
type part struct {
	name string
	source
	// packages are the main packages, within the module. The programs have the names of the last elements.
	packages []string
	tags     []string
	// variables are set by the linker, as the Makefile of the module does.
	variables map[string]string
	// c: it has code in C, and is linked with the static libraries of this machine that are named. The others have none.
	c []string
	// replaced are files of the module that others take the place of.
	replaced map[string]string
	// archive is the file of the image that is made of the program, which then is not kept by itself.
	archive string
	// reference is the name of that image.
	reference string
}

// Who changes a version puts the sum there that `go mod download -json MODULE@VERSION` prints, outside of the workspace, and tries the worker's tests. The versions are also in README.md.
var (
	runcSource = source{"github.com/opencontainers/runc", "v1.5.2", "h1:eUUowc2WJCnFYzI87C1WqRcu356Dk/wsoi90y+2wEfE="}
	// containerd's programs tell by their version whether the shim is theirs: both are built of the same.
	containerdSource = source{"github.com/containerd/containerd/v2", "v2.4.2", "h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw="}
	cniSource        = source{"github.com/containernetworking/plugins", "v1.9.1", "h1:8oU6WsIsU3bpnNZuvHp74a6cE1MJwbj2P7s4/yTUNlA="}
	corednsSource    = source{"github.com/coredns/coredns", image.CoreDNSVersion, "h1:OBT+OEyHVdUiVxPhrNlC5XZVq3RkSxzQXfZQ76gm5ck="}
)

// parts returns all of them, the one first that a machine can lack something for.
func parts() []part {
	containerd := map[string]string{containerdSource.module + "/version.Version": containerdSource.version}
	return []part{
		{
			name:   "runc",
			source: runcSource,
			// Its version is in a file of the module. Without the tag libpathrs, for a library that distributions do not have yet, it walks paths by its own code.
			packages: []string{"."},
			tags:     []string{"seccomp", "urfave_cli_no_docs", "netgo", "osusergo"},
			c:        []string{"libseccomp"},
		},
		{
			name:      "CNI plugins",
			source:    cniSource,
			packages:  []string{"./plugins/main/ptp", "./plugins/ipam/host-local", "./plugins/meta/portmap"},
			variables: map[string]string{cniSource.module + "/pkg/utils/buildversion.BuildVersion": cniSource.version},
		},
		{
			name:      "containerd",
			source:    containerdSource,
			packages:  []string{"./cmd/containerd", "./cmd/ctr"},
			tags:      []string{"urfave_cli_no_docs"},
			variables: containerd,
		},
		{
			// There is one for each pod. Without gRPC, as upstream builds it, it is 8 MB and not 14.
			name:      "containerd-shim-runc-v2",
			source:    containerdSource,
			packages:  []string{"./cmd/containerd-shim-runc-v2"},
			tags:      []string{"urfave_cli_no_docs", "no_grpc"},
			variables: containerd,
		},
		{
			name:     "CoreDNS",
			source:   corednsSource,
			packages: []string{"."},
			tags:     []string{"grpcnotrace"},
			// It says of which commit it is; a module does not know.
			variables: map[string]string{corednsSource.module + "/coremain.GitCommit": corednsSource.version},
			replaced:  map[string]string{"core/plugin/zplugin.go": corednsPlugins()},
			archive:   image.CoreDNSArchive,
			reference: image.CoreDNSReference,
		},
	}
}

// corednsKept are the plugins that CoreDNS is built with. Left out are those that ask a cloud, etcd or Nomad, or report to one, and what needs files that no image here has: of 1,403 packages that
// CoreDNS is compiled of, 902 are left.
const corednsKept = `
	acl any auto autopath bind bufsize cache cancel chaos debug dns64 errors file forward header health hosts https k8s_external kubernetes loadbalance local log loop metadata metrics
	minimal multisocket nsid pprof proxyproto ready reload rewrite root secondary sign template timeouts tls transfer tsig view whoami`

// corednsPlugins is the file of CoreDNS that says which plugins are built in. Upstream generates it from a list too; the order in which plugins act is in another file, which stays.
func corednsPlugins() string {
	var text strings.Builder
	text.WriteString("package plugin\n\nimport (\n")
	for name := range strings.FieldsSeq(corednsKept) {
		fmt.Fprintf(&text, "\t_ %q\n", corednsSource.module+"/plugin/"+name)
	}
	text.WriteString(")\n")
	return text.String()
}

// flags are the arguments of go build, but for files and packages.
func (p part) flags() []string {
	linked := []string{"-s", "-w"}
	for _, name := range slices.Sorted(maps.Keys(p.variables)) {
		linked = append(linked, "-X", name+"="+p.variables[name])
	}
	flags := []string{"-trimpath", "-buildvcs=false", "-mod=readonly"}
	if len(p.c) > 0 {
		// As upstream builds its releases: static, and at an address that nobody knows.
		linked = append(linked, "-linkmode", "external", "-extldflags", "-static-pie")
		flags = append(flags, "-buildmode=pie")
	}
	if len(p.tags) > 0 {
		flags = append(flags, "-tags="+strings.Join(p.tags, ","))
	}
	return append(flags, "-ldflags="+strings.Join(linked, " "))
}

// programs are the names of what is built of the packages.
func (p part) programs() []string {
	var names []string
	for _, name := range p.packages {
		if name == "." {
			name = strings.TrimSuffix(p.module, "/v2")
		}
		names = append(names, name[strings.LastIndex(name, "/")+1:])
	}
	return names
}

// files are what the part consists of.
func (p part) files() []string {
	if p.archive != "" {
		return []string{p.archive}
	}
	return p.programs()
}
