package main

import (
	"strings"
	"testing"

	"go.temporal.io/server/common"
	"go.temporal.io/server/common/dynamicconfig"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	client, err := loadSettings([]string{"limit.blobSize.error=4096", "history.timerProcessorMaxTimeShift=20ms"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"limit.blobSize.error":                4096,
		"history.timerProcessorMaxTimeShift":  "20ms", // an override wins
		"history.transferProcessorMaxPollRPS": 10000,
		"limit.maxIDLength":                   255,
	} {
		values := client.GetValue(dynamicconfig.MakeKey(key))
		if len(values) != 1 || values[0].Value != want {
			t.Errorf("%s is %v, want %v", key, values, want)
		}
	}
	for _, wrong := range []string{"limit.blobSize.error", "=1", "no.such.key=1", "limit.maxIDLength=many", "limit.maxIDLength=[", "frontend.keepAliveTime=soon"} {
		if _, err := loadSettings([]string{wrong}); err == nil {
			t.Errorf("--set %s was taken", wrong)
		}
	}
}

func TestParsePostgres(t *testing.T) {
	t.Parallel()
	pg, err := parsePostgres("postgres://some%40one:se%2Fcret@db.example/stepwell?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	store := pg.store("temporal")
	if store.ConnectAddr != "db.example:5432" || store.User != "some%40one" ||
		store.Password != "se/cret" || store.ConnectAttributes["sslmode"] != "disable" {
		t.Errorf("parsed %q %q %q", store.ConnectAddr, store.User, store.ConnectAttributes)
	}
	for _, wrong := range []string{"", "host=x password=secret", "mysql://a:secret@b/c", "postgres://a:secret@/c", "postgres://:secret@b/c", "postgres://a:secret@b:x/c", "postgres://a:secret@b/c?x=1&x=2"} {
		if _, err := parsePostgres(wrong); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q gave the error %v", wrong, err)
		}
	}
}

func TestIDInShard(t *testing.T) {
	t.Parallel()
	for shard := int32(1); shard <= historyShards; shard++ {
		if got := common.WorkflowIDToHistoryShard("ns", idInShard("ns", shard), historyShards); got != shard {
			t.Errorf("the id for shard %d is in shard %d", shard, got)
		}
	}
}
