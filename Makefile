# stepwell: `make run` shows it, `make test` checks it. `make help` lists the rest.

GO  ?= go
BIN := bin
# Nothing here needs a C compiler; `make race` does.
export CGO_ENABLED ?= 0

.PHONY: help build run test lint race chaos load faults cancels long clean stepwell temporald server worker s3server

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Go's build cache decides what has to be built; an unchanged binary takes a second.
build: stepwell temporald server worker ## build everything into bin/, start nothing

stepwell:
	@echo "building bin/stepwell (the first time the libraries too)"
	@$(GO) build -trimpath -o $(BIN)/stepwell ./cmd/stepwell

server:
	@$(GO) build -trimpath -o $(BIN)/stepwell-server ./cmd/server

worker:
	@$(GO) build -trimpath -o $(BIN)/stepwell-worker ./cmd/worker

temporald:
	@echo "building bin/temporald (Temporal's server as a library: minutes the first time)"
	@cd temporald && $(GO) build -ldflags='-s -w' -o ../$(BIN)/temporald .

run: stepwell temporald ## the whole stack on this machine, with a demo at the first start
	@exec $(BIN)/stepwell dev --demo

# The S3 server that tests start, a module of its own.
s3server:
	@cd internal/blob/s3server && $(GO) build -ldflags='-s -w' -o ../../../$(BIN)/s3server .

test: build s3server ## everything that a change must pass, about ten minutes
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	cd temporald && $(GO) vet ./...
	cd internal/blob/s3server && $(GO) vet ./...
	$(GO) test -p 2 -timeout 15m ./internal/app ./... # the longest package first
	@$(MAKE) --no-print-directory bench-short
	@{ $(HAS_BROWSER); } || echo 'NOT TESTED: the portal in a browser. Install one with: make browser'
	$(GO) test ./internal/app -count 1 -run 'TestCanaries$$' -args -canaries # secrets of every kind are found nowhere

lint: ## staticcheck, golangci-lint, and Temporal's check that workflow code is deterministic
	$(GO) run go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0 ./workflows
	$(GO) run honnef.co/go/tools/cmd/staticcheck@latest ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@latest run

race: export CGO_ENABLED = 1
race: build s3server ## the tests under the race detector (needs a C compiler)
	$(GO) test -race -p 2 -timeout 40m ./...

HAS_BROWSER := command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null

INSTALL := apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq

.PHONY: browser
browser: ## install Chromium, and npm for axe-core, where they are missing (Debian; as root)
	@$(HAS_BROWSER) || { echo "installing Chromium"; $(INSTALL) chromium >/dev/null; }
	@command -v npm >/dev/null || { echo "installing npm"; $(INSTALL) --no-install-recommends npm >/dev/null; }

.PHONY: bench bench-short bench-binary
bench-binary:
	@$(GO) build -trimpath -o $(BIN)/bench ./bench

bench: bench-binary temporald ## stepwell against raw Temporal workflows, some minutes (docs/benchmarks.md)
	@$(BIN)/bench -json $(BIN)/bench.json

bench-short: bench-binary temporald ## the same in less than a minute; fails on gross regressions
	@$(BIN)/bench -short -fail 3

chaos: ROUNDS = 3
chaos: ## runs under kills and stalls of every process, ROUNDS=3 times each; about ten minutes a round
	$(GO) test ./e2e -run TestChaos -count 1 -timeout 6h -v -args -rounds $(ROUNDS)

load: ## 2,000 runs and 2,000 webhooks under kills, 2,000 reads a second, overload, bad clients, upgrade and rollback; some minutes
	$(GO) test ./e2e -run 'TestCluster|TestHooks|TestAnswers|TestReads|TestOverload|TestBadClients|TestUpgrade' -count 1 -parallel 1 -timeout 30m -v \
		-args -cluster.runs 2000 -hook.calls 2000 -load.gets 2000 -load.lists 200 -load.runs 20 -load.for 30s -slack 0
	$(GO) test ./internal/app -run 'TestSynchronousRunsOvertake' -count 1 -v -args -fair.runs 2000

faults: ## dies at every passage of every crash point, restarts and looks; about ten minutes
	$(GO) test ./internal/fault -count 1 -timeout 60m -run 'TestWalk$$' -walk
	$(GO) test ./internal/fault -count 1 -tags fault -run 'TestPlan'

cancels: ## cancels 50 runs in each state and 2,000 around their end; some minutes
	$(GO) test ./internal/app -count 1 -parallel 1 -timeout 60m -v -run 'TestCancel' -args -strict -cancels 200 -cancel.times 50 -cancel.races 2000

long: ## long forms of tests on one node: 10,000 pages, 50,000 items, every byte of an exchange; about ten minutes
	$(GO) test ./internal/app -count 1 -parallel 1 -timeout 60m -v -run 'TestBig|TestWaits|TestCut|TestSuccess' -args -long -strict
	$(GO) test ./internal/app -count 1 -timeout 30m -v -run 'TestStateIsLinearizable' -args -state.ops 1000
	$(GO) test ./internal/fault -count 1 -timeout 30m -v -run 'TestCounter' -args -counted 200

clean: ## remove binaries; data stays
	rm -rf $(BIN)
