# The production binaries, each as an image that holds nothing else: static, without a
# shell, not run by root. `--target server` and `--target worker` are stepwell;
# `--target temporald` is Temporal for one node, for those who have no Temporal.
#
# internal/app/compose_test.go runs the build lines below.

FROM golang:1.26 AS sources
WORKDIR /src
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What the processes may write to, owned by whom they run as.
RUN mkdir -p /data/blobs

FROM sources AS programs
RUN go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/server ./cmd/worker ./cmd/stepwell

FROM sources AS temporald-program
WORKDIR /src/temporald
RUN go build -trimpath -ldflags='-s -w' -o /out/temporald .

FROM scratch AS base
COPY --from=sources /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=sources --chown=65532:65532 /data /data
USER 65532:65532

FROM base AS server
# `stepwell admin …` and the client commands, beside the server.
COPY --from=programs /out/stepwell /out/server /
ENTRYPOINT ["/server"]

FROM base AS worker
COPY --from=programs /out/worker /
ENTRYPOINT ["/worker"]

FROM base AS temporald
COPY --from=temporald-program /out/temporald /
ENTRYPOINT ["/temporald"]
