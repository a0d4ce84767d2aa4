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

# Static executables: a role is launched with an empty environment, from whatever directory the node keeps it in. A plugin says its version
# itself, so that its digest changes only when the plugin does.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# go build looks by itself at what has changed, and links only that.
.PHONY: build
build: ## build everything into bin/
	@mkdir -p bin/plugins bin/examples
	$(GO_BUILD) -ldflags '-X main.version=$(VERSION)' -o bin/ ./core/cmd/reeved ./cli/cmd/reeve
	$(GO_BUILD) -o bin/plugins/ ./plugins/consensus ./plugins/curator ./plugins/hostsfile
	$(GO_BUILD) -o bin/examples/ ./examples/lighthouse

.PHONY: run
run: build ## run a cluster of one node in var/dev, until Ctrl-C
	@exec bin/reeve dev up --dir ./var/dev

# The runner builds and vets every module outside the workspace too, runs all tests, and counts them on its last line.
.PHONY: test
test: build lint ## run every test of every module
	@go run ./e2e/cmd/testall

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

.PHONY: clean
clean: ## remove what was built and the reports of tests; var/dev is kept
	rm -rf bin var/test

$(STATICCHECK):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(BUF):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

$(PROTOC_GEN_GO):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(PROTOC_GEN_GO_GRPC):
	GOBIN=$(dir $@) GOWORK=off GOFLAGS= go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
