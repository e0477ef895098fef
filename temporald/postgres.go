package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
)

// poolSize is the number of connections of each pool, open and idle. The four
// services have two pools each.
const poolSize = 8

// postgres says how to reach Postgres: the URL as it was given, and its parts
// as the server's configuration wants them.
type postgres struct {
	url        string
	address    string
	user       string
	password   string
	attributes map[string]string
}

// parsePostgres reads a postgres:// URL. Its errors do not repeat the URL,
// which holds a password.
func parsePostgres(raw string) (postgres, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return postgres{}, errors.New("the address of postgres is not a postgres:// URL")
	}
	if u.Hostname() == "" || u.User.Username() == "" {
		return postgres{}, errors.New("the URL of postgres names no host or no user")
	}
	password, _ := u.User.Password()
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	pg := postgres{
		url:        raw,
		address:    net.JoinHostPort(u.Hostname(), port),
		user:       url.User(u.User.Username()).String(), // the plugin puts it into a URL as it is
		password:   password,
		attributes: map[string]string{},
	}
	for key, values := range u.Query() {
		if len(values) != 1 {
			return postgres{}, fmt.Errorf("the URL of postgres gives %s more than once", key)
		}
		pg.attributes[key] = values[0]
	}
	return pg, nil
}

// store is the server's configuration for one database. The value is the
// caller's to change.
func (p postgres) store(database string) *config.SQL {
	attributes := map[string]string{"application_name": "temporald"}
	for key, value := range p.attributes {
		attributes[key] = value
	}
	return &config.SQL{
		PluginName:        postgresql.PluginNamePGX,
		ConnectAddr:       p.address,
		ConnectProtocol:   "tcp",
		User:              p.user,
		Password:          p.password,
		DatabaseName:      database,
		ConnectAttributes: attributes,
		MaxConns:          poolSize,
		MaxIdleConns:      poolSize,
		MaxConnLifetime:   time.Hour,
	}
}
