// Package config is the configuration: one struct, read from the environment. It owns
// names, defaults and their checks; nothing else reads the environment.
package config

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

// prefix begins the name of every variable.
const prefix = "STEPWELL_"

// Config is everything that can be configured. Tags: env is the variable's name without
// its prefix, default its default, help one line for the documents.
type Config struct {
	Listen          string        `env:"LISTEN" default:"127.0.0.1:8080" help:"address of the API, host:port"`
	DataDir         string        `env:"DATA_DIR" default:".stepwell" help:"directory in which stepwell dev keeps everything, and in which large bodies are kept"`
	APIKey          string        `env:"API_KEY" help:"presets an admin key, 16 to 200 visible ASCII characters"`
	DatabaseURL     string        `env:"DATABASE_URL" help:"postgres:// address of the application's database; stepwell dev starts its own without it"`
	ListenURL       string        `env:"LISTEN_DATABASE_URL" help:"direct postgres:// address for LISTEN, when DATABASE_URL goes through a transaction pooler"`
	DatabaseConns   int           `env:"DATABASE_CONNS" default:"24" help:"connections to Postgres of one process"`
	TemporalAddress string        `env:"TEMPORAL_ADDRESS" help:"host:port of Temporal; stepwell dev starts its own without it"`
	EncryptionKeys  string        `env:"ENCRYPTION_KEYS" help:"key ring for secrets at rest: id:base64key, several separated by commas, the first one seals; stepwell dev makes one"`
	KeysFile        string        `env:"ENCRYPTION_KEYS_FILE" help:"file that holds the key ring, in place of ENCRYPTION_KEYS; it is read again when it changes"`
	Egress          string        `env:"EGRESS" default:"private" help:"where requests may go: private, public or allowlist"`
	EgressAllow     []string      `env:"EGRESS_ALLOW" help:"hosts, host:port or CIDRs of the allowlist, separated by commas"`
	PublicURL       string        `env:"PUBLIC_URL" help:"public address of the API with /v1, for links; default: the request's Host"`
	Brands          string        `env:"BRANDS" help:"JSON file of how organizations want the portal to look: {\"<id or name>\": {\"name\", \"logo\", \"colour\"}}"`
	PortalContact   string        `env:"PORTAL_CONTACT" help:"whom the portal tells end users to ask, such as support@example.com; default: whoever sent the link"`
	Notice          string        `env:"NOTICE" help:"text of important_notice in runs"`
	SyncWait        time.Duration `env:"SYNC_WAIT" default:"5m" help:"how long a synchronous caller waits before it gets 202"`
	MaxBody         int64         `env:"MAX_BODY" default:"16777216" help:"bytes of a request body"`
	MaxAnswer       int64         `env:"MAX_ANSWER" default:"104857600" help:"bytes of an upstream's answer after decompression"`
	MaxOpenRuns     int           `env:"MAX_OPEN_RUNS" default:"10000" help:"unfinished runs of one organization"`
	MaxInFlight     int           `env:"MAX_IN_FLIGHT" default:"1024" help:"requests that one server works at, those that wait for their run apart; more are answered 503"`
	MaxWaiting      int           `env:"MAX_WAITING" default:"20000" help:"run requests, which may wait for their run, and streams of one server; more are answered 503"`
	BlobURL         string        `env:"BLOB_URL" help:"where large bodies and files are kept: file:///directory or s3://bucket?region=…; default: a directory in the data directory"`
	BlobWait        time.Duration `env:"BLOB_WAIT" default:"2m" help:"how long a run waits for a store of large bodies that fails or is full, before its step fails"`
	Retention       time.Duration `env:"RETENTION" default:"720h" help:"how long ended runs, their results and files are kept, 96h or more"`
	PortalLinkLife  time.Duration `env:"PORTAL_LINK_LIFE" default:"24h" help:"how long a link to the portal of an end user is good"`
	RunDeadline     time.Duration `env:"RUN_DEADLINE" default:"168h" help:"how long a run that begins now may be open; then it is stopped and has failed, whatever it waits for"`
	Activities      string        `env:"ACTIVITIES" default:"auto" help:"kind of Temporal activities: auto, or regular to see each page in Temporal's UI"`
	Evaluators      int           `env:"EVALUATORS" default:"0" help:"evaluator processes for small expressions; 0 means one for each CPU, at most 4"`
	LogLevel        string        `env:"LOG_LEVEL" default:"info" help:"debug, info, warn or error"`
	MetricsListen   string        `env:"METRICS_LISTEN" help:"address for Prometheus, host:port, GET /metrics and GET /health/ready; off when empty"`
	PprofListen     string        `env:"PPROF_LISTEN" help:"address for Go's profiler, :port for loopback only; off when empty"`
	WorkerSlots     int           `env:"WORKER_SLOTS" default:"200" help:"regular activities that one worker runs at a time"`
	StopWait        time.Duration `env:"STOP_WAIT" default:"15s" help:"how long work in flight may go on after SIGTERM"`
}

// Read reads the configuration from the environment. A malformed or unknown variable
// with the prefix is an error that names it.
func Read() (Config, error) { return parse(os.Environ()) }

func parse(environ []string) (Config, error) {
	given := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix) {
			given[strings.TrimPrefix(name, prefix)] = value
		}
	}
	for name := range foreign {
		delete(given, name)
	}
	var c Config
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("env")
		text, ok := given[name]
		delete(given, name)
		if !ok || text == "" {
			text = tag.Get("default")
		}
		if err := set(v.Field(i), text); err != nil {
			return c, fmt.Errorf("%s%s: %w", prefix, name, err)
		}
	}
	if len(given) > 0 {
		names := make([]string, 0, len(given))
		for name := range given {
			names = append(names, prefix+name)
		}
		sort.Strings(names)
		return c, fmt.Errorf("unknown variable %s; docs/operations.md lists those that there are", strings.Join(names, ", "))
	}
	return c, c.check()
}

// foreign are variables with the prefix that other programs of the project read: the
// command line's client, and tests.
var foreign = map[string]bool{"URL": true, "TEMPORALD_BIN": true}

func set(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case string:
		v.SetString(text)
	case []string:
		if text != "" {
			v.Set(reflect.ValueOf(strings.Split(text, ",")))
		}
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("must be a duration such as 5m or 4s")
		}
		v.SetInt(int64(d))
	default: // integers
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("must be a whole number, 0 or more")
		}
		v.SetInt(n)
	}
	return nil
}

// minRetention is longer than the 72 h for which Temporal keeps closed workflows: the id of
// a deleted run is free again, and its next run must find it free there, too.
const minRetention = 96 * time.Hour

func (c *Config) check() error {
	if c.APIKey != "" && (len(c.APIKey) < 16 || len(c.APIKey) > 200 || strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return fmt.Errorf("%sAPI_KEY: must be 16 to 200 visible ASCII characters", prefix)
	}
	if c.Retention < minRetention {
		return fmt.Errorf("%sRETENTION: must be 96h or more", prefix)
	}
	if c.Activities != "auto" && c.Activities != "regular" {
		return fmt.Errorf("%sACTIVITIES: must be auto or regular", prefix)
	}
	return nil
}

// Row is a line of the configuration table in the documents.
type Row struct{ Name, Default, Help string }

// Table lists all variables in the order of the struct.
func Table() []Row {
	t := reflect.TypeFor[Config]()
	rows := make([]Row, 0, t.NumField())
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		rows = append(rows, Row{prefix + tag.Get("env"), tag.Get("default"), tag.Get("help")})
	}
	return rows
}
