-- Whether the workflow of an aborted run is known to have ended: until then the sweeper
-- cancels it again. (The index runs_aborted is for the release before.)
ALTER TABLE runs ADD COLUMN settled boolean NOT NULL DEFAULT false;
CREATE INDEX runs_unsettled ON runs (coalesce(checked_at, completed_at)) WHERE status = 'aborted' AND NOT settled;

-- Cancels and reruns of many runs at once. The runs are chosen when the operation is
-- accepted; caller is who asked for it, with the rights that he had then.
CREATE TABLE bulk_operations (
    org_id       text        NOT NULL REFERENCES organizations,
    id           text        NOT NULL,
    kind         text        NOT NULL CHECK (kind IN ('cancel', 'rerun')),
    caller       json        NOT NULL,
    total        integer     NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX bulk_open ON bulk_operations (created_at) WHERE completed_at IS NULL;

CREATE TABLE bulk_runs (
    org_id       text    NOT NULL,
    operation_id text    NOT NULL,
    place        integer NOT NULL, -- oldest run first
    run_id       text    NOT NULL,
    outcome      text    CHECK (outcome IN ('done', 'skipped', 'failed')), -- null: not yet its turn
    error        text,
    PRIMARY KEY (org_id, operation_id, place),
    FOREIGN KEY (org_id, operation_id) REFERENCES bulk_operations ON DELETE CASCADE
);
