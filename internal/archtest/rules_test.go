package archtest

// imports is the architecture. Each line names a package and what of this module its
// code may import; `*` is everything but the packages of stackOnly. A package that is
// not listed fails the test: give it a line, and think about which way it points. Tests
// may import more.
const imports = `
.                      <

engine/template        <
engine                 < . engine/template
engine/js              < . engine engine/template
results                < . engine
activities             < . engine results internal/outbound internal/oauth internal/fault internal/metrics internal/tracing
workflows              < . activities
store                  < .
api/v1                 <
api                    < . api/v1 internal/oauth internal/secret internal/tracing
service                < . api web engine results store workflows internal/oauth internal/secret internal/fault internal/metrics

web                    < .

client                 < api/v1
docs                   <

internal/blob          < .
internal/config        <
internal/demo          <
internal/doctor         < . store workflows internal/blob
internal/fault          < .
internal/logging       <
internal/metrics       <
internal/oauth         < . internal/outbound
internal/outbound      < .
internal/secret        <
internal/temporalsetup < activities workflows internal/logging internal/metrics internal/tracing
internal/tracing       <
internal/cli           < api/v1 client
internal/archtest      <

internal/app           < *
internal/app/dev       < * internal/app internal/devstack internal/demo
internal/devstack      <
internal/devstack/stacktest < internal/devstack

cmd/server             < engine/js internal/app
cmd/worker             < engine/js internal/app
cmd/stepwell           < engine/js internal/app internal/app/dev internal/cli internal/config internal/logging

e2e                    < *
e2e/portal             < *
bench                  < * internal/devstack internal/devstack/stacktest internal/demo
`

// only says which packages may import what comes from elsewhere; their tests too. A
// name stands for itself and all below it. What a test may use besides is in testsMay.
const only = `
github.com/dop251      < engine/js
github.com/jackc       < store internal/devstack internal/devstack/stacktest bench
go.temporal.io         < workflows activities internal/temporalsetup internal/logging internal/app internal/devstack/stacktest bench
gocloud.dev            < internal/blob
github.com/aws         < internal/blob
code.dny.dev           < internal/outbound
github.com/gorilla/mux < api
github.com/fergusstrange < internal/devstack
github.com/klauspost/compress < store
google.golang.org/grpc < internal/devstack/stacktest bench
testing                < internal/devstack/stacktest
github.com/prometheus  < internal/metrics
go.opentelemetry.io    < internal/tracing
`

// testsMay are the tests that may import what only forbids their package.
const testsMay = `
internal/devstack      < go.temporal.io google.golang.org/grpc
service                < github.com/jackc go.temporal.io
activities             < github.com/jackc
workflows              < github.com/jackc
e2e                    < github.com/jackc go.temporal.io
e2e/portal             < github.com/jackc
e2e/portal             < github.com/jackc
internal/doctor         < github.com/jackc go.temporal.io
internal/fault         < github.com/jackc go.temporal.io
internal/app           < github.com/jackc go.opentelemetry.io
`

// stackOnly are packages that no production binary may link, at whatever distance, and
// the packages that may import them.
const stackOnly = `
internal/devstack           < internal/app/dev internal/devstack/stacktest bench
internal/devstack/stacktest < bench
internal/demo               < internal/app/dev bench
internal/app/dev            < cmd/stepwell
`

// production are the binaries that stackOnly is about.
var production = []string{"cmd/server", "cmd/worker"}

// httpClients are the packages that may send HTTP requests: what goes to the outside
// passes the one hardened client. The blob store is the operator's own.
var httpClients = []string{"internal/outbound", "internal/blob", "client", "bench", "e2e"}

// badNames are names of packages that say nothing about what the package owns.
var badNames = []string{"util", "utils", "common", "helpers", "shared", "types", "models", "misc", "base"}
