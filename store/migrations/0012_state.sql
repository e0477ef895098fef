-- The persistent state of tools, a row for each key. Every write to a tool's state takes
-- the next number of tools.state_seq as the version of the keys that it changes; a key
-- that is removed leaves its version behind, so that whoever read the state at a number
-- can tell what has changed since. Only the newest of those are kept: up to
-- tools.state_floor they are forgotten.
ALTER TABLE tools
    ADD COLUMN state_seq   bigint NOT NULL DEFAULT 0,
    ADD COLUMN state_floor bigint NOT NULL DEFAULT 0;

CREATE TABLE state_keys (
    org_id  text   NOT NULL,
    tool_id text   NOT NULL,
    key     text   NOT NULL,
    version bigint NOT NULL,
    value   json   NOT NULL,
    PRIMARY KEY (org_id, tool_id, key),
    FOREIGN KEY (org_id, tool_id) REFERENCES tools (org_id, id) ON DELETE CASCADE
);

CREATE TABLE state_removed (
    org_id  text   NOT NULL,
    tool_id text   NOT NULL,
    key     text   NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (org_id, tool_id, key),
    FOREIGN KEY (org_id, tool_id) REFERENCES tools (org_id, id) ON DELETE CASCADE
);
CREATE INDEX state_removed_by_version ON state_removed (org_id, tool_id, version);

-- What a run read at its start, if its tool's expressions can reach persistedState. It goes
-- with a success; of other runs it stays, for reruns.
CREATE TABLE run_states (
    org_id text   NOT NULL,
    run_id text   NOT NULL,
    seq    bigint NOT NULL,
    state  json   NOT NULL,
    PRIMARY KEY (org_id, run_id),
    FOREIGN KEY (org_id, run_id) REFERENCES runs (org_id, id) ON DELETE CASCADE
);

-- What a transform changed in the state: stepwell.StateChange.
ALTER TABLE pages ADD COLUMN state json;
