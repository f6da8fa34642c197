# Everything a change is checked with, the same on a desk and in CI. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The root module first, then every nested one but tools/, which only pins programs.
MODULES := . $(shell find . -mindepth 2 -name go.mod -not -path './tools/*' -not -path '*/testdata/*' -not -path '*/.*' \
	| sed 's,/go.mod$$,,' | sort)

# How many inputs each fuzz target gets, and how often each benchmark runs. A time works too, but for go.dev/issue/75804 a
# target may then fail with "context deadline exceeded".
FUZZTIME ?= 200000x
COUNT ?= 10
BENCH ?= .

# Files that `make bench` writes and compares.
NEW ?= new.bench.out
OLD ?= old.bench.out

BIN := $(CURDIR)/bin
LINT := $(BIN)/golangci-lint
CONFIG := $(CURDIR)/.golangci.yml
export GOLANGCI_LINT_CACHE := $(BIN)/lint-cache

# $(call each,command): the command in every module, named before it runs.
each = for module in $(MODULES); do echo "--- $$module: $(1)"; (cd "$$module" && $(1)); done

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "%-12s %s\n", $$1, $$2 }'

.PHONY: all
all: fmt-check vet fix-check lint generate api test fuzz ## Every check that CI makes, but versions and apidiff

.PHONY: test
test: ## Tests: race detector and shuffled, then once more on 1 and 4 processors without it
	@$(call each,go test -race -shuffle=on -count=1 ./...)
	@$(call each,go test -cpu 1$(comma)4 ./...)

.PHONY: vet
vet: ## go vet
	@$(call each,go vet ./...)

.PHONY: fix-check
fix-check: ## Fail where go fix would modernize something
	@$(call each,go fix -diff ./...)

.PHONY: fmt
fmt: $(LINT) ## Format the code (gofumpt, goimports)
	@$(call each,$(LINT) fmt --config $(CONFIG))

.PHONY: fmt-check
fmt-check: $(LINT) ## Fail where `make fmt` would change something
	@$(call each,$(LINT) fmt --diff --config $(CONFIG))

.PHONY: lint
lint: $(LINT) ## golangci-lint with .golangci.yml
	@$(LINT) config verify --config $(CONFIG)
	@$(call each,$(LINT) run --config $(CONFIG) ./...)

# go test fuzzes one target of one package at a time, so each is found first.
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (200000x)
	@for module in $(MODULES); do ( \
		cd "$$module"; \
		packages=$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); \
		for package in $$packages; do \
			listed=$$(go test -list '^Fuzz' "$$package") || { echo "$$listed"; exit 1; }; \
			for target in $$(grep '^Fuzz' <<<"$$listed" || true); do \
				echo "--- $$package: $$target for $(FUZZTIME)"; \
				go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$package"; \
			done; \
		done \
	); done

.PHONY: bench
bench: $(BIN)/benchstat ## Run the root module's benchmarks into NEW, and compare with OLD where that exists
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... | tee "$(NEW)"
	@if [ -f "$(OLD)" ] && [ "$(OLD)" != "$(NEW)" ]; then $(BIN)/benchstat "$(OLD)" "$(NEW)"; else $(BIN)/benchstat "$(NEW)"; fi

.PHONY: overhead
overhead: ## Measure what hedgerow and its peers cost, in one run
	@cd bench && go run ./overhead

.PHONY: tail
tail: ## Simulate services with tails, and rewrite docs/tail and the README's table
	@cd bench && go test -count=1 -timeout 60m -v -run '^TestSimulation$$' ./tail -update

.PHONY: api
api: ## Compare the public API with its goldens (rewrite them: go test -run TestAPI . -update)
	@go test -run '^TestAPI$$' -count=1 -v .

.PHONY: apidiff
apidiff: $(BIN)/apidiff ## Report API changes since the last tag; informs, never fails on a change
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "no tag yet: nothing to compare with"; exit 0; }; \
	tmp=$$(mktemp -d); trap 'git worktree remove --force "$$tmp/tree"; rm -rf "$$tmp"' EXIT; \
	git worktree add --quiet --detach "$$tmp/tree" "$$tag"; \
	module=$$(go list -m); \
	(cd "$$tmp/tree" && $(BIN)/apidiff -m -w "$$tmp/export" "$$module"); \
	echo "API changes since $$tag:"; $(BIN)/apidiff -m "$$tmp/export" "$$module"

# Compared with the state before, not with the last commit, so that it also serves in the middle of a change.
.PHONY: generate
generate: ## Run go generate, and fail if that changed a file
	@state() { git status --porcelain; git diff | git hash-object --stdin; }; \
	before=$$(state); \
	$(call each,go generate ./...); \
	after=$$(state); \
	if [ "$$before" != "$$after" ]; then echo "go generate changed the tree:"; git status --short; exit 1; fi

.PHONY: versions
versions: $(LINT) ## Print the versions of what the checks use
	@go version
	@$(LINT) version

.PHONY: clean
clean: ## Remove bin/ and benchmark output
	@rm -rf "$(BIN)" ./*.bench.out

# The pinned tools: rebuilt when a pin changes.
$(LINT): PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/benchstat: PACKAGE := golang.org/x/perf/cmd/benchstat
$(BIN)/apidiff: PACKAGE := golang.org/x/exp/cmd/apidiff
$(LINT) $(BIN)/benchstat $(BIN)/apidiff: tools/go.mod tools/go.sum
	@echo "--- building $(@F), which can take minutes the first time"
	@go build -modfile=tools/go.mod -o $@ $(PACKAGE)
	@touch $@

comma := ,
