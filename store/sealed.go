package store

// sealedTable is a table with a column `sealed`. What is in it is sealed for its place:
// the name of the table and the values of its primary key as text.
type sealedTable struct {
	name string
	key  []string // columns of the primary key, in order
}

// sealedTables are all tables that keep sealed values: what rotates keys walks over them.
// A test compares them with the schema.
var sealedTables = []sealedTable{
	{"run_credentials", []string{"org_id", "run_id"}},
	{"systems", []string{"org_id", "id", "environment"}},
	{"end_user_credentials", []string{"org_id", "end_user_id", "system_id"}},
	{"portal_signins", []string{"state"}},
	{"webhook_secrets", []string{"org_id", "id"}},
}
