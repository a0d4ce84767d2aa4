# Builds and tests Reeve. `make help` lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# What is built can be told from the commit; a tree without git still builds.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
MODULES := $(shell sed -n 's/^[[:space:]]*\.\///p' go.work)

# The tools, at versions that are changed on purpose only.
STATICCHECK_VERSION := v0.8.2
BUF_VERSION := v1.70.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
TOOLS := $(CURDIR)/.tools
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)/staticcheck
BUF := $(TOOLS)/buf-$(BUF_VERSION)/buf
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc
# v2.46 and later need modules that the module proxy does not serve.
NFPM_VERSION := v2.45.2
NFPM := $(TOOLS)/nfpm-$(NFPM_VERSION)/nfpm

# Static executables: a role is launched with an empty environment, from whatever directory the node keeps it in. A plugin says its version
# itself, so that its digest changes only when the plugin does.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false
# Where the executables go, or come from, and further flags of the linker.
BIN ?= bin
# What runs on this machine, where BIN is for another platform: it says what the plugins are.
HOST_REEVED ?= $(BIN)/reeved
HOST_PLUGINS ?= $(BIN)/plugins
GO_LDFLAGS ?=
PLUGINS := consensus curator hostsfile
EXAMPLES := lighthouse

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# go build looks by itself at what has changed, and links only that.
.PHONY: build
build: ## build everything into bin/
	@mkdir -p $(BIN)/plugins $(BIN)/examples
	$(GO_BUILD) -ldflags '-X main.version=$(VERSION) $(GO_LDFLAGS)' -o $(BIN)/ ./core/cmd/reeved ./cli/cmd/reeve
	$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o $(BIN)/plugins/ $(PLUGINS:%=./plugins/%)
	$(GO_BUILD) -ldflags '$(GO_LDFLAGS)' -o $(BIN)/examples/ $(EXAMPLES:%=./examples/%)
	@$(HOST_REEVED) genesis --output $(BIN)/plugins/genesis.json --manifests-of $(HOST_PLUGINS) $(PLUGINS:%=$(BIN)/plugins/%)

.PHONY: run
run: build ## run a cluster of one node in var/dev, until Ctrl-C
	@exec $(BIN)/reeve dev up --dir ./var/dev

# The runner builds and vets every module outside the workspace too, runs all tests, and counts them on its last line.
.PHONY: test
test: build lint $(NFPM) ## run every test of every module
	@go run ./e2e/cmd/testall

# A part of `make test`. It says what a machine lacks that cannot run it: qemu, swtpm, cryptsetup, or apt-get and a way to Debian's kernel.
.PHONY: vm-test
vm-test: ## run the tests on real machines, which qemu emulates: LUKS2, a TPM, wrong clocks
	go test -race -count=1 -timeout=40m -v ./e2e/vm/...

.PHONY: lint
lint: $(STATICCHECK) ## check format, vet, staticcheck (and golangci-lint, if it is installed)
	@files=$$(gofmt -l $(MODULES)); if [ -n "$$files" ]; then echo "gofmt -w is needed for:"; echo "$$files"; exit 1; fi
	go vet $(MODULES:%=./%/...)
	$(STATICCHECK) $(MODULES:%=./%/...)
	@if command -v golangci-lint >/dev/null; then for module in $(MODULES); do (cd $$module && golangci-lint run ./...) || exit 1; done; \
	else echo "golangci-lint is not installed: the imports between the rooms were not checked by it"; fi

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## generate the Go code of the protocol
	cd proto && PATH="$(dir $(BUF)):$(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$$PATH" \
		bash -c '$(BUF) lint && $(BUF) generate && cd ../plugins/curator/internal && $(BUF) generate'

# How often the tests of the whole system are run one after another.
SOAK ?= 20
.PHONY: soak
soak: build ## run the tests of the whole system SOAK times (20)
	go test -race -count=$(SOAK) -timeout=0 -failfast ./e2e/...

# How long each fuzz target runs. What one finds is kept in testdata/fuzz of its package, as a seed of every later test.
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz: ## run every fuzz target, one after another, for FUZZTIME (10s) each
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' $(MODULES:%=./%) | sort -u | sed 's,/[^/]*:func , ,' | while read -r room target; do \
		echo "$$room $$target"; (cd $$room && go test -run='^$$' -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) . </dev/null) || exit 1; done

# What is measured, by a regular expression for the names of the measures; empty: everything.
RUN ?=
.PHONY: bench
bench: build ## measure against the bare parts; RUN=name: only what has that name
	$(GO_BUILD) -o bin/bench/ ./e2e/cmd/bench ./e2e/bench/programs/...
	bin/bench/bench -run '$(RUN)'

# Below DESTDIR, for whoever makes a package; below PREFIX for the machine itself.
DESTDIR ?=
PREFIX ?= /usr/local
LIBDIR := $(PREFIX)/lib/reeve
DOCDIR := $(PREFIX)/share/doc/reeve
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# The command line that prints its completions: one that runs on this machine.
HOST_REEVE ?= $(BIN)/reeve

# The executables lie together, as in bin/: reeve finds reeved and the built-in plugins beside itself, also through the links by which people call them.
.PHONY: install
install: ## install what `make build` has built below PREFIX (/usr/local) and DESTDIR
	@test -x $(BIN)/reeved || { echo "there is no $(BIN)/reeved: run make build first" >&2; exit 1; }
	install -d $(addprefix $(DESTDIR),$(LIBDIR)/plugins $(LIBDIR)/examples $(PREFIX)/bin $(PREFIX)/sbin $(UNITDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR) $(DOCDIR)/examples)
	install -m 0755 $(BIN)/reeve $(BIN)/reeved $(DESTDIR)$(LIBDIR)/
	install -m 0755 $(PLUGINS:%=$(BIN)/plugins/%) $(DESTDIR)$(LIBDIR)/plugins/
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

# Without symbol tables: a third less, and a panic names its functions all the same.
.PHONY: package-%
package-%: build $(NFPM)
	@rm -rf $(PACKAGES)/$*/root
	GOOS=linux GOARCH=$* $(MAKE) --no-print-directory build BIN=$(PACKAGES)/$*/bin HOST_REEVED=$(BIN)/reeved HOST_PLUGINS=$(BIN)/plugins \
		GO_LDFLAGS='-s -w' VERSION='$(VERSION)'
	@$(MAKE) --no-print-directory install BIN=$(PACKAGES)/$*/bin HOST_REEVE=$(BIN)/reeve DESTDIR=$(PACKAGES)/$*/root PREFIX=/usr \
		ZSHDIR=/usr/share/zsh/vendor-completions
	@GOOS=linux GOARCH=$* packaging/licences $(PACKAGES)/$*/root/usr/share/doc/reeve/third-party \
		./core/cmd/reeved ./cli/cmd/reeve $(PLUGINS:%=./plugins/%) $(EXAMPLES:%=./examples/%)
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

$(NFPM):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
