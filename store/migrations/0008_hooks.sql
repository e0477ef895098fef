-- What a hook's call brought besides the payload of its run, for expressions and for reruns.
CREATE TABLE hook_calls (
    org_id   text     NOT NULL,
    run_id   text     NOT NULL,
    headers  json     NOT NULL,
    is_text  boolean  NOT NULL, -- the body is UTF-8
    encoding smallint NOT NULL DEFAULT 0,
    body     bytea,
    blob     text,
    PRIMARY KEY (org_id, run_id),
    FOREIGN KEY (org_id, run_id) REFERENCES runs ON DELETE CASCADE,
    CHECK ((body IS NULL) <> (blob IS NULL))
);
ALTER TABLE hook_calls ALTER COLUMN body SET STORAGE EXTERNAL;
-- The calls of the last 24 hours by the key that their senders gave, as a digest, and the run
-- that each started.
CREATE TABLE hook_keys (
    org_id     text        NOT NULL,
    tool_id    text        NOT NULL,
    key        bytea       NOT NULL,
    run_id     text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, tool_id, key)
);
CREATE INDEX hook_keys_oldest ON hook_keys (created_at);
-- When an open run is given up. Runs of a release before have none: the setting counts for them.
ALTER TABLE runs ADD COLUMN deadline timestamptz;
CREATE INDEX runs_deadline ON runs (deadline) WHERE status = 'running';
