# Builds and tests Reeve. `make help` lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# What is built can be told from the commit; a tree without git still builds.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
MODULES := $(shell sed -n 's/^[[:space:]]*\.\///p' go.work)

# A test run changes no go.mod. The tree may belong to another user, which git refuses to look at: versions come from VERSION. Without the paths of this checkout
# in what is compiled, other checkouts find it in Go's cache.
export GOFLAGS := $(strip $(GOFLAGS) -mod=readonly -buildvcs=false -trimpath)

# The tools, at versions that are changed on purpose only.
STATICCHECK_VERSION := v0.8.2
BUF_VERSION := v1.70.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
GOTESTSUM_VERSION := v1.13.0
# Every checkout of this user shares them.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/reeve/tools
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)/staticcheck
BUF := $(TOOLS)/buf-$(BUF_VERSION)/buf
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc
# v2.46 and later need modules that the module proxy does not serve.
NFPM_VERSION := v2.45.2
NFPM := $(TOOLS)/nfpm-$(NFPM_VERSION)/nfpm

# Static executables: a role is launched with an empty environment, from whatever directory the node keeps it in. A plugin says its version
# itself, so that its digest changes only when the plugin does.
GO_BUILD := CGO_ENABLED=0 go build
# Where the executables go, or come from, and further flags of the linker.
BIN ?= bin
# What runs on this machine, where BIN is for another platform: it says what the plugins are.
HOST_REEVED ?= $(BIN)/reeved
HOST_PLUGINS ?= $(BIN)/plugins
# The command line that prints its completions, and tests plugins.
HOST_REEVE ?= $(BIN)/reeve
# Without symbols and DWARF a program has two thirds of the size, which a node copies and hashes. Panics name their functions all the same; `make build GO_LDFLAGS=` is for a debugger.
GO_LDFLAGS ?= -s -w
PLUGINS := consensus curator hostsfile
# Those that are built and installed with them, and that no cluster begins with: an owner adds them.
OPTIONAL := archive
MAKE_GENESIS = $(HOST_REEVED) genesis --output $(BIN)/plugins/genesis.json --manifests-of $(HOST_PLUGINS) $(PLUGINS:%=$(BIN)/plugins/%)
EXAMPLES := lighthouse

# What is built of Kubernetes takes minutes to compile, for each set of flags anew: it is built with these only, never with the race detector, and
# neither vetted nor checked by staticcheck, which both look into all of Kubernetes. It is little: everything else of the plugin is in other packages.
OF_KUBERNETES := ./plugins/kubernetes ./plugins/kubernetes/internal/components ./plugins/kubernetes/cmd/upstream
KUBERNETES_VERSION := $(shell sed -n 's,^\tk8s.io/kubernetes ,,p' plugins/kubernetes/go.mod)
KUBERNETES_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES_VERSION)

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 32

# go build looks by itself at what has changed, and links only that.
.PHONY: build
build: programs kubernetes ## build everything into bin/

.PHONY: kubernetes
kubernetes: ## build the plugin kubernetes into bin/plugins; the first time takes minutes
	@mkdir -p $(BIN)/plugins
	$(GO_BUILD) -ldflags '$(KUBERNETES_LDFLAGS)' -o $(BIN)/plugins/ ./plugins/kubernetes

# What a worker of Kubernetes runs besides the plugin: see plugins/kubernetes/cmd/parts, which has the versions. Nothing is built that is up to date.
PARTS := $(BIN)/kubernetes
.PHONY: deps-kubernetes
deps-kubernetes: ## build containerd, runc, CNI plugins and CoreDNS into bin/kubernetes; the first time takes minutes
	@architecture=$$(go env GOARCH) && work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
		CGO_ENABLED=0 GOARCH=$$(go env GOHOSTARCH) go build -trimpath -buildvcs=false -o "$$work/parts" ./plugins/kubernetes/cmd/parts && \
		"$$work/parts" build --output $(PARTS) --architecture $$architecture && \
		$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o "$$work/hello" ./plugins/kubernetes/cmd/hello && \
		"$$work/parts" image --reference reeve.internal/hello:1 --architecture $$architecture --output $(PARTS)/hello.tar "$$work/hello"

.PHONY: programs
programs: ## build everything but the plugin kubernetes
	@mkdir -p $(BIN)/plugins $(BIN)/examples
	$(GO_BUILD) -ldflags '-X main.version=$(VERSION) $(GO_LDFLAGS)' -o $(BIN)/ ./core/cmd/reeved ./cli/cmd/reeve ./sdk/conformance/cmd/reeve-conformance
	$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o $(BIN)/plugins/ $(PLUGINS:%=./plugins/%) $(OPTIONAL:%=./plugins/%)
	$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o $(BIN)/examples/ $(EXAMPLES:%=./examples/%)
	@$(MAKE_GENESIS) $(if $(wildcard $(BIN)/reports),--reports $(BIN)/reports)
	@$(if $(GOARCH)$(GOOS),,$(MAKE) --no-print-directory beacon)

# The example that is not written in Go. It is Node.js with a program in it, so it is for this machine and in no package, and takes Node.js, npm and npm's registry: without them
# everything else is built all the same.
BEACON := examples/beacon
BEACON_SOURCES := $(wildcard $(addprefix $(BEACON)/,package.json package-lock.json src/*.js proto/*.proto scripts/*.mjs) proto/reeve/role/v1/*.proto proto/reeve/host/v1/*.proto)
# Nothing makes them. package-lock.json is no package of those below.
$(BEACON_SOURCES): ;
.PHONY: beacon
beacon: ## build examples/beacon into bin/examples/, if Node.js 20 or later and npm are there
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
		echo "$(BIN)/examples/beacon was not built: it takes Node.js 20.12 or later, and npm"; \
	elif ! node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major > 20 || major == 20 && minor >= 12 ? 0 : 1)'; then \
		echo "$(BIN)/examples/beacon was not built: it takes Node.js 20.12 or later, and this is $$(node --version)"; \
	else $(MAKE) --no-print-directory $(BIN)/examples/beacon; fi

# What npm cannot fetch is no fault of what is built here, and a registry that does not answer holds the build up for three minutes at most.
$(BIN)/examples/beacon: $(BEACON_SOURCES)
	@if ! (cd $(BEACON) && timeout --foreground 180 npm ci --silent --prefer-offline); then echo "$@ was not built: npm ci failed"; \
	else cd $(BEACON) && npm run --silent build -- $(abspath $@); fi

.PHONY: run
run: programs ## run a cluster of one node in var/dev, until Ctrl-C
	@exec $(BIN)/reeve dev up --dir ./var/dev

# The tests: docs/contributing.md tells of their tiers. Results of earlier runs are not used: they prove nothing about a test that fails now and then. Linking
# without DWARF takes half the time; panics name their functions all the same. The time limits only end what hangs. -cpu=1: Go 1.26 lets all processors use one
# context of the race detector for the timers of a synctest bubble, and two that fire at once end the program with SIGSEGV. Go 1.27 gives each its own.
UNIT_FLAGS := -race -count=1 -vet=off -ldflags=-w -p=4 -parallel=4 -cpu=1 -timeout=20m
SYSTEM_FLAGS := -count=1 -vet=off -ldflags=-w -p=5 -parallel=4 -timeout=40m
# How often `make soak` runs each test.
SOAK ?= 1
SOAK_FLAGS := -tags=soak -race -count=$(SOAK) -vet=off -p=2 -cpu=1 -timeout=0
# What random tests begin with. `make soak` takes a new one unless it is given.
SEED ?= 1
# The packages of a tier. What lies below these directories of e2e tests the tests themselves.
# The modules whose tests take longest come first.
LONGEST := sdk/conformance sdk $(filter plugins/%,$(MODULES))
ALL_PACKAGES := go list $(patsubst %,./%/...,$(LONGEST) $(filter-out $(LONGEST),$(MODULES)))
# Those that take longest come first.
SYSTEM_PACKAGES := go list ./e2e ./e2e/nodes ./e2e/steps ./e2e/kubernetes ./e2e/howto ./e2e/hostile ./e2e/tutorial ./e2e/partition ./e2e/... | grep -Ev '/e2e/(bench|cmd|internal|reference|vm)(/|$$)'
UNIT_PACKAGES := $(ALL_PACKAGES) | grep -Ev '/e2e(/(histories|hostile|howto|install|kubernetes|nodes|partition|steps|tutorial|vm)(/|$$)|$$)' | grep -vxF "$$(go list $(OF_KUBERNETES))"
SOAK_PACKAGES := $(ALL_PACKAGES) | grep -Ev '/e2e/vm(/|$$)' | grep -vxF "$$(go list $(OF_KUBERNETES))"

# Runs a tier: its name, flags of gotestsum, what prints its packages, flags of go test. What became of it is for testall to judge. As root every test program
# runs in network, mount and PID namespaces of its own. A program with the race detector sleeps for a second when it ends, unless GORACE says otherwise.
define run-tier
@mkdir -p var/test && rm -rf var/test/$(1).* var/test/tables
@echo "tier $(1), seed $(SEED)"; GORACE=atexit_sleep_ms=10 REEVE_TEST_SEED=$(SEED) REEVE_TEST_PROGRAMS=$(CURDIR)/bin $(GOTESTSUM) \
	--format=pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=all --jsonfile=var/test/$(1).json --junitfile=var/test/$(1).xml $(2) \
	--packages="$$($(3))" -- -exec=$(CURDIR)/bin/test/isolate $(4) || touch var/test/$(1).failed
endef
# A failed test is run once more, alone, after all others: if it passes then, it is flaky.
run-system-tier = $(call run-tier,system,--rerun-fails=1 --rerun-fails-run-root-test --rerun-fails-max-failures=2 --rerun-fails-abort-on-data-race,$(SYSTEM_PACKAGES),$(SYSTEM_FLAGS))
JUDGE = @go run ./e2e/cmd/testall -seed $(SEED)

# The unit tests wait for much of their time. Meanwhile everything else is checked, and what the system tests need is built, with what they leave of the processors.
.PHONY: test
test: ## run what decides whether a change lands: lint, unit and system tests
	@$(MAKE) --no-print-directory -j2 run-unit beside-unit
	$(run-system-tier)
	$(JUDGE) -modules "$$(go list -m)" unit system

.PHONY: beside-unit
beside-unit:
	@nice $(MAKE) -j1 --no-print-directory lint check-modules build

.PHONY: test-unit
test-unit: run-unit ## run the unit tests of every module, with the race detector
	$(JUDGE) -modules "$$(go list -m)" unit

.PHONY: test-system
test-system: run-system ## run the tests of the whole system with the built programs
	$(JUDGE) system

.PHONY: run-unit
run-unit: test-programs test-parts $(GOTESTSUM)
	$(call run-tier,unit,,$(UNIT_PACKAGES),$(UNIT_FLAGS))

.PHONY: run-system
run-system: build test-programs ahead $(GOTESTSUM)
	$(run-system-tier)

.PHONY: test-programs
test-programs: ## build what tests need beside the programs
	@mkdir -p bin/test bin/failpoints/plugins
	@$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o bin/test/ ./e2e/cmd/isolate ./plugins/curator/cmd/testcurator ./plugins/archive/cmd/tests3
	@$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -tags failpoints -o bin/failpoints/ ./core/cmd/reeved
	@$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -tags failpoints -o bin/failpoints/plugins/ ./plugins/consensus ./plugins/curator

# What the tests of Kubernetes need, compiled as e2e/internal/build would.
.PHONY: ahead
ahead: kubernetes test-parts

# A machine that lacks what the parts need (libseccomp) is for the tests that run them to report.
.PHONY: test-parts
test-parts:
	@$(MAKE) --no-print-directory deps-kubernetes || { [ "$$(id -u)" != 0 ] && echo "the parts of a worker of Kubernetes were not built"; }

# The acceptance test of the gate: two copies of it at the same time, beside a node on the default ports and a busy loop on each processor.
.PHONY: test-twice
test-twice: build ## run two copies of `make test` at the same time, on a busy machine
	@.ci/twice

.PHONY: check-modules
check-modules: ## build every module outside the workspace, and compare the versions that it selects there
	@.ci/check-modules $(MODULES)

# The tests of soak are all of `make test` and those with the build tag soak. Its e2e/vm gets a kernel from Debian's mirror, and so is not cut off from the network.
.PHONY: soak
soak: SEED := $(if $(filter command line environment,$(origin SEED)),$(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
soak: build test-programs ahead $(GOTESTSUM) $(NFPM) ## run every variant of every test SOAK times (1), for hours, with a new seed
	$(call run-tier,soak,,$(SOAK_PACKAGES),$(SOAK_FLAGS))
	@$(MAKE) --no-print-directory vm-test || touch var/test/soak.failed
	@$(MAKE) --no-print-directory fuzz || touch var/test/soak.failed
	@$(MAKE) --no-print-directory mutants || touch var/test/soak.failed
	@$(MAKE) --no-print-directory histories || touch var/test/soak.failed
	$(JUDGE) -modules "$$(go list -m)" soak

# A part of `make soak`. It says what a machine lacks that cannot run it: qemu, swtpm, cryptsetup, or apt-get and a way to Debian's kernel.
.PHONY: vm-test
vm-test: ## run the tests on real machines, which qemu emulates: LUKS2, a TPM, wrong clocks
	go test -tags=soak -race -count=1 -timeout=40m -v ./e2e/vm/...

# With other flags than those of GO_BUILD everything that the packages need would be compiled a second time.
AS_BUILT := CGO_ENABLED=0
LINTED = $(shell go list $(MODULES:%=./%/...) | grep -vxF "$$(go list $(OF_KUBERNETES))")
# vet and staticcheck see the files of soak too. What only those use would be unused without them. Eleven test files of a few lines are left out in exchange.
.PHONY: lint
lint: $(STATICCHECK) ## check format, vet, staticcheck (and golangci-lint, if it is installed)
	@files=$$(gofmt -l $(MODULES)); if [ -n "$$files" ]; then echo "gofmt -w is needed for:"; echo "$$files"; exit 1; fi
	$(AS_BUILT) go vet -tags=soak $(LINTED)
	$(AS_BUILT) $(STATICCHECK) -tags=soak $(LINTED)
	@if command -v golangci-lint >/dev/null; then for module in $(MODULES); do (cd $$module && golangci-lint run ./...) || exit 1; done; \
	else echo "golangci-lint is not installed: errcheck and ineffassign were not run"; fi

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## generate the Go code of the protocol, and the reference
	cd proto && PATH="$(dir $(BUF)):$(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$$PATH" \
		bash -c '$(BUF) lint && $(BUF) generate && cd ../plugins/curator/internal && $(BUF) generate'
	@$(MAKE) --no-print-directory reference

# Each test that holds a page of docs/reference to its source writes it anew.
.PHONY: reference
reference: ## generate the reference in docs: the protocols, the SDK, the command line, the checks
	UPDATE_GOLDEN=1 go test -count=1 -run '^(TestProtocols|TestSDK|TestReference)$$' ./e2e/reference ./cli/command ./sdk/conformance

# Every one is tested, and then it fails if one does not conform.
.PHONY: conformance
conformance: build ## run the conformance suite on the built-in plugins and the examples, and print what it says
	@failed=; for plugin in $(PLUGINS:%=$(BIN)/plugins/%) $(OPTIONAL:%=$(BIN)/plugins/%) $(BIN)/plugins/kubernetes $(EXAMPLES:%=$(BIN)/examples/%) $$(ls $(BIN)/examples/beacon 2>/dev/null); do \
		echo "$$plugin"; $(BIN)/reeve plugin test --quiet $$plugin || failed="$$failed $$plugin"; echo; done; \
		if [ -n "$$failed" ]; then echo "these do not conform:$$failed"; exit 1; fi

# The private key that signs the reports on the built-in plugins (`reeve operator key FILE` makes one): a release has its own, of which people know the public half.
# Without one a key is made for this build, and thrown away.
REPORT_KEY ?=
.PHONY: reports
reports: programs ## run the suite on the built-in plugins, and put what it says into the genesis catalog, signed by REPORT_KEY=FILE
	@$(MAKE) --no-print-directory write-reports

# What is in BIN is for this machine.
.PHONY: write-reports
write-reports:
	@rm -rf $(BIN)/reports && mkdir -p $(BIN)/reports
	@key='$(REPORT_KEY)'; if [ -z "$$key" ]; then own=$$(mktemp -d); trap 'rm -rf "$$own"' EXIT; key=$$own/key; $(HOST_REEVE) operator key "$$key" >/dev/null 2>&1 || exit 1; fi; \
		failed=; for plugin in $(PLUGINS); do \
		echo "$$plugin"; $(HOST_REEVE) plugin test --quiet --report $(BIN)/reports/$$plugin.json --key "$$key" $(BIN)/plugins/$$plugin || failed="$$failed $$plugin"; echo; done; \
		if [ -n "$$failed" ]; then echo "these do not conform:$$failed"; exit 1; fi
	@$(MAKE_GENESIS) --reports $(BIN)/reports

.PHONY: mutants
mutants: ## run every check of the conformance suite on every plugin with a fault; `make test` runs one plugin for each check, and the checks of its group
	REEVE_MUTANTS=whole go test -race -count=1 -timeout=0 -v -run '^TestMutants$$' ./sdk/conformance

# How many histories of concurrent calls are made under faults, on one cluster.
HISTORIES ?= 200
# Where no network namespace can be made, the histories are those of the faults that need none.
.PHONY: histories
histories: ## make HISTORIES histories (200) under faults and check that they are linearizable
	@if [ "$$(id -u)" = 0 ] && command -v nft >/dev/null && unshare -n true 2>/dev/null; then test=TestHistoriesInNamespaces; else test=TestHistories; fi; \
		REEVE_HISTORIES=$(HISTORIES) go test -race -count=1 -timeout=0 -v -run "^$$test\$$" ./e2e/histories

# Which of the tests that Kubernetes has of itself, by a regular expression for their names.
UPSTREAM ?= \[Conformance\]
.PHONY: upstream
upstream: ## run upstream's tests of Kubernetes (UPSTREAM=names) on two nodes, as root, and write down which pass
	REEVE_UPSTREAM='$(UPSTREAM)' go test -tags=soak -count=1 -timeout=0 -v -run '^TestUpstream$$' ./e2e/kubernetes

# How long each fuzz target runs. What one finds is kept in testdata/fuzz of its package, as a seed of every later test.
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz: ## run every fuzz target, one after another, for FUZZTIME (10s) each
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' $(MODULES:%=./%) | sort -u | sed 's,/[^/]*:func , ,' | while read -r room target; do \
		echo "$$room $$target"; (cd $$room && go test -run='^$$' -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) . </dev/null) || exit 1; done

# What is measured, by a regular expression for the names of the measures; empty: everything.
RUN ?=
# With how many simulated nodes a curator is measured, such as 1000,5000; empty: 1000.
NODES ?=
.PHONY: bench
bench: build ## measure against the bare parts; RUN=name: only what has that name
	$(GO_BUILD) -o bin/bench/ ./e2e/cmd/bench ./e2e/bench/programs/...
	bin/bench/bench -run '$(RUN)' -nodes '$(NODES)'

# Below DESTDIR, for whoever makes a package; below PREFIX for the machine itself.
DESTDIR ?=
PREFIX ?= /usr/local
LIBDIR := $(PREFIX)/lib/reeve
DOCDIR := $(PREFIX)/share/doc/reeve
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d

# The executables lie together, as in bin/: reeve finds reeved and the built-in plugins beside itself, also through the links by which people call them.
.PHONY: install
install: ## install what `make build` has built below PREFIX (/usr/local) and DESTDIR
	@test -x $(BIN)/reeved || { echo "there is no $(BIN)/reeved: run make build first" >&2; exit 1; }
	install -d $(addprefix $(DESTDIR),$(LIBDIR)/plugins $(LIBDIR)/examples $(PREFIX)/bin $(PREFIX)/sbin $(UNITDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR) $(DOCDIR)/examples)
	install -m 0755 $(BIN)/reeve $(BIN)/reeved $(BIN)/reeve-conformance $(DESTDIR)$(LIBDIR)/
	install -m 0755 $(PLUGINS:%=$(BIN)/plugins/%) $(OPTIONAL:%=$(BIN)/plugins/%) $(DESTDIR)$(LIBDIR)/plugins/
	install -m 0644 $(BIN)/plugins/genesis.json $(DESTDIR)$(LIBDIR)/plugins/
	install -m 0755 $(EXAMPLES:%=$(BIN)/examples/%) $(DESTDIR)$(LIBDIR)/examples/
	ln -sfn ../lib/reeve/reeve $(DESTDIR)$(PREFIX)/bin/reeve
	ln -sfn ../lib/reeve/reeved $(DESTDIR)$(PREFIX)/sbin/reeved
	sed 's,@LIBDIR@,$(LIBDIR),g;s,@DOCDIR@,$(DOCDIR),g' packaging/systemd/reeved.service > $(DESTDIR)$(UNITDIR)/reeved.service
	$(HOST_REEVE) completion bash > $(DESTDIR)$(BASHDIR)/reeve
	$(HOST_REEVE) completion zsh > $(DESTDIR)$(ZSHDIR)/_reeve
	$(HOST_REEVE) completion fish > $(DESTDIR)$(FISHDIR)/reeve.fish
	chmod 0644 $(addprefix $(DESTDIR),$(UNITDIR)/reeved.service $(BASHDIR)/reeve $(ZSHDIR)/_reeve $(FISHDIR)/reeve.fish)
	install -m 0644 README.md LICENSE $(DESTDIR)$(DOCDIR)/
	install -m 0644 packaging/systemd/privileged.conf $(DESTDIR)$(DOCDIR)/examples/

# Where workers look for them first.
PARTSDIR := $(LIBDIR)/kubernetes
.PHONY: install-kubernetes-parts
install-kubernetes-parts: ## install what `make deps-kubernetes` has built below PREFIX (/usr/local) and DESTDIR
	@test -e $(PARTS)/parts.json || { echo "there is no $(PARTS)/parts.json: run make deps-kubernetes first" >&2; exit 1; }
	install -d $(DESTDIR)$(PARTSDIR)
	install -m 0755 $(filter-out %.tar %.json,$(wildcard $(PARTS)/*)) $(DESTDIR)$(PARTSDIR)/
	install -m 0644 $(wildcard $(PARTS)/*.tar $(PARTS)/*.json) $(DESTDIR)$(PARTSDIR)/

# What nodes of this machine hold may be the only copy of a cluster.
.PHONY: uninstall
uninstall: ## remove what `make install` has installed; the data of nodes is left
	rm -rf $(DESTDIR)$(LIBDIR) $(DESTDIR)$(DOCDIR)
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/reeve $(PREFIX)/sbin/reeved $(UNITDIR)/reeved.service $(BASHDIR)/reeve $(ZSHDIR)/_reeve $(FISHDIR)/reeve.fish)
	@for kept in /etc/reeve /var/lib/reeve /var/log/reeve; do \
		if [ -e $(DESTDIR)$$kept ]; then echo "$(DESTDIR)$$kept is left as it is: remove it by hand if this machine is not to be a node any more"; fi; done

# Where the packages go, and what they are made from.
PACKAGES ?= var/package
PACKAGE_VERSION = $(shell packaging/deb/version '$(VERSION)')
.PHONY: package
package: package-amd64 package-arm64 ## make the Debian packages in var/package, for amd64 and arm64

# With REPORT_KEY the package for this machine's architecture has reports on its
# plugins; those for the other one are made on such a machine.
.PHONY: package-%
package-%: programs $(NFPM)
	@rm -rf $(PACKAGES)/$*/root
	GOOS=linux GOARCH=$* $(MAKE) --no-print-directory programs BIN=$(PACKAGES)/$*/bin HOST_REEVED=$(BIN)/reeved HOST_PLUGINS=$(BIN)/plugins VERSION='$(VERSION)'
	@if [ -n '$(REPORT_KEY)' ] && [ "$*" = "$$(go env GOHOSTARCH)" ]; then \
		$(MAKE) --no-print-directory write-reports BIN=$(PACKAGES)/$*/bin HOST_REEVED=$(BIN)/reeved HOST_PLUGINS=$(BIN)/plugins HOST_REEVE=$(BIN)/reeve; fi
	@$(MAKE) --no-print-directory install BIN=$(PACKAGES)/$*/bin HOST_REEVE=$(BIN)/reeve DESTDIR=$(PACKAGES)/$*/root PREFIX=/usr \
		ZSHDIR=/usr/share/zsh/vendor-completions
	@GOOS=linux GOARCH=$* packaging/licences $(PACKAGES)/$*/root/usr/share/doc/reeve/third-party \
		./core/cmd/reeved ./cli/cmd/reeve ./sdk/conformance/cmd/reeve-conformance $(PLUGINS:%=./plugins/%) $(OPTIONAL:%=./plugins/%) $(EXAMPLES:%=./examples/%)
	@rm $(PACKAGES)/$*/root/usr/share/doc/reeve/LICENSE
	PACKAGE_ARCH=$* PACKAGE_VERSION='$(PACKAGE_VERSION)' PACKAGE_ROOT=$(PACKAGES)/$*/root \
		$(NFPM) package --config packaging/deb/nfpm.yaml --packager deb --target $(PACKAGES)/

.PHONY: clean
clean: ## remove what was built and the reports of tests; var/dev and var/bench are kept
	rm -rf bin var/test var/package

$(STATICCHECK):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(BUF):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

$(PROTOC_GEN_GO):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(PROTOC_GEN_GO_GRPC):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)

$(GOTESTSUM):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(NFPM):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
