# stepwell: `make run` shows it, `make test` checks it. `make help` lists the rest.

GO      ?= go
BIN     := bin
SOURCES := $(shell find . -name '*.go' -not -path './temporald/*' -not -name '*_test.go') go.mod go.sum $(wildcard store/migrations/*.sql api/openapi.yaml internal/cli/*.json)

.PHONY: build run test vet clean help

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: $(BIN)/stepwell $(BIN)/temporald $(BIN)/stepwell-server $(BIN)/stepwell-worker ## build everything, start nothing

$(BIN)/stepwell: $(SOURCES)
	@echo "building stepwell"
	@CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./cmd/stepwell

$(BIN)/stepwell-server: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./cmd/server

$(BIN)/stepwell-worker: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./cmd/worker

$(BIN)/temporald: $(shell find temporald -name '*.go') temporald/go.mod temporald/go.sum
	@echo "building temporald (Temporal's server as a library: minutes the first time)"
	@cd temporald && CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o ../$@ .

run: $(BIN)/stepwell $(BIN)/temporald ## the whole stack on this machine, with a demo at the first start
	@exec $(BIN)/stepwell dev --demo

clean: ## remove binaries; data stays
	rm -rf $(BIN)
