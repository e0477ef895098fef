package main

import (
	"fmt"
	"net"
	"strconv"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// historyShards is fixed when the databases are made: a later change is
// ignored by the server. Four are enough for one node.
const historyShards = 4

const clusterName = "active"

// newServer wires Temporal's four services to run in this process. The frontend
// listens at listen, the others on loopback at ports that are free now.
func newServer(pg postgres, listen *net.TCPAddr, settings dynamicconfig.Client, logger log.Logger) (temporal.Server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	services := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{}
	add := func(name primitives.ServiceName, ip string, port int) {
		services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: ip}}
		hosts[name] = static.SingleLocalHost(reachable(ip, port))
	}
	add(primitives.FrontendService, listen.IP.String(), listen.Port)
	add(primitives.HistoryService, "127.0.0.1", ports[0])
	add(primitives.MatchingService, "127.0.0.1", ports[1])
	add(primitives.WorkerService, "127.0.0.1", ports[2])

	frontend := reachable(listen.IP.String(), listen.Port)
	cfg := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     "default",
			VisibilityStore:  "visibility",
			NumHistoryShards: historyShards,
			DataStores: map[string]config.DataStore{
				"default":    {SQL: pg.store(databaseName)},
				"visibility": {SQL: pg.store(visibilityDatabaseName)},
			},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		PublicClient:        config.PublicClient{HostPort: frontend},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(settings),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
		temporal.WithCustomMetricsHandler(metrics.NoopMetricsHandler),
	)
	if err != nil {
		return nil, fmt.Errorf("make the server: %w", err)
	}
	return server, nil
}

// reachable is the address at which a listener on ip and port is called from
// this machine.
func reachable(ip string, port int) string {
	if net.ParseIP(ip).IsUnspecified() {
		ip = "127.0.0.1"
	}
	return net.JoinHostPort(ip, strconv.Itoa(port))
}

// freePorts gives n different TCP ports that are free on loopback now. One may
// be taken before its service listens; the server then ends, and whoever
// supervises it starts it again.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // held until all are found
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
