CREATE TABLE organizations (
    id         text        PRIMARY KEY,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    org_id       text        NOT NULL REFERENCES organizations (id),
    id           text        NOT NULL,
    name         text        NOT NULL,
    role         text        NOT NULL CHECK (role IN ('admin', 'member', 'runner')),
    user_id      text        NOT NULL,
    tools        text[],
    hash         bytea       NOT NULL UNIQUE,
    expires_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    PRIMARY KEY (org_id, id)
);

-- Every saved version of a tool. Rows are immutable; deleted ones stay while runs show them.
CREATE TABLE tool_versions (
    key        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id     text        NOT NULL REFERENCES organizations (id),
    tool_id    text        NOT NULL,
    version    text        NOT NULL,
    document   json        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    deleted    boolean     NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX tool_versions_live ON tool_versions (org_id, tool_id, version) WHERE NOT deleted;

-- The systems that the steps of a version use: the run list filters by them.
CREATE TABLE tool_version_systems (
    org_id      text   NOT NULL,
    system_id   text   NOT NULL,
    version_key bigint NOT NULL REFERENCES tool_versions (key) ON DELETE CASCADE,
    PRIMARY KEY (org_id, system_id, version_key)
);

CREATE TABLE tools (
    org_id      text        NOT NULL REFERENCES organizations (id),
    id          text        NOT NULL,
    version_key bigint      NOT NULL REFERENCES tool_versions (key),
    archived    boolean     NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, id)
);
CREATE INDEX tools_newest ON tools (org_id, created_at DESC, id DESC);

-- A run. The row is also the outbox: what is running and not dispatched is started by the sweeper.
CREATE TABLE runs (
    org_id         text        NOT NULL REFERENCES organizations (id),
    id             text        NOT NULL,
    tool_id        text        NOT NULL,
    tool_version   bigint      NOT NULL REFERENCES tool_versions (key),
    status         text        NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'success', 'failed', 'aborted')),
    error          text,
    inputs         bytea       NOT NULL,
    options        json        NOT NULL,
    request_source text        NOT NULL,
    mode           text        NOT NULL CHECK (mode IN ('prod', 'dev')),
    trace_id       text        NOT NULL,
    user_id        text        NOT NULL,
    parent_run_id  text,
    rerun_of       text,
    warnings       text[],
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at   timestamptz,
    dispatched     boolean     NOT NULL DEFAULT false,
    checked_at     timestamptz,
    data_step      integer,
    data_bytes     bigint,
    data_encoding  smallint,
    data           bytea,
    data_blob      text,
    PRIMARY KEY (org_id, id),
    CHECK ((status = 'running') = (completed_at IS NULL)),
    CHECK ((status IN ('failed', 'aborted')) = (error IS NOT NULL)),
    CHECK (status = 'success' OR (data IS NULL AND data_blob IS NULL AND data_step IS NULL))
);
ALTER TABLE runs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX runs_newest ON runs (org_id, started_at DESC, id DESC);
CREATE INDEX runs_by_tool ON runs (org_id, tool_id, started_at DESC, id DESC);
CREATE INDEX runs_undispatched ON runs (started_at) WHERE status = 'running' AND NOT dispatched;
CREATE INDEX runs_aborted ON runs (completed_at) WHERE status = 'aborted';
CREATE INDEX runs_running ON runs (coalesce(checked_at, started_at)) WHERE status = 'running';

-- What a run must know and nobody may read: run-time credentials, sealed. Deleted when the run ends.
CREATE TABLE run_credentials (
    org_id text  NOT NULL,
    run_id text  NOT NULL,
    sealed bytea NOT NULL,
    PRIMARY KEY (org_id, run_id),
    FOREIGN KEY (org_id, run_id) REFERENCES runs (org_id, id) ON DELETE CASCADE
);

-- One received page (or plain answer, or transform value) of a step. Stored before the cursor moves.
CREATE TABLE pages (
    org_id     text        NOT NULL,
    run_id     text        NOT NULL,
    step       integer     NOT NULL CHECK (step >= 0),
    item       integer     NOT NULL CHECK (item >= 0),
    page       integer     NOT NULL CHECK (page >= 1),
    error      text,
    records    bigint      NOT NULL DEFAULT 0,
    bytes      bigint      NOT NULL DEFAULT 0,
    encoding   smallint    NOT NULL DEFAULT 0,
    body       bytea,
    blob       text,
    next       json,
    cursor     text,
    done       boolean     NOT NULL,
    ended_by   text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, run_id, step, item, page)
);
ALTER TABLE pages ALTER COLUMN body SET STORAGE EXTERNAL;

-- What a dataSelector chose, in chunks of consecutive items. looped is false for one plain item.
CREATE TABLE selections (
    org_id     text     NOT NULL,
    run_id     text     NOT NULL,
    step       integer  NOT NULL,
    chunk      integer  NOT NULL,
    looped     boolean  NOT NULL,
    total      integer  NOT NULL,
    first_item integer  NOT NULL,
    encoding   smallint NOT NULL DEFAULT 0,
    body       bytea,
    blob       text,
    PRIMARY KEY (org_id, run_id, step, chunk)
);
ALTER TABLE selections ALTER COLUMN body SET STORAGE EXTERNAL;

-- A request in flight: always written before one with effects is sent, and after a second for a slow one.
CREATE TABLE claims (
    org_id     text        NOT NULL,
    run_id     text        NOT NULL,
    step       integer     NOT NULL,
    item       integer     NOT NULL,
    page       integer     NOT NULL,
    worker     text        NOT NULL,
    effect     boolean     NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, run_id, step, item, page)
);

-- Worker processes; one whose lease has run out is dead or stalled.
CREATE TABLE workers (
    id          text        PRIMARY KEY,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL
);

-- What a run waits for, shown as progress.waitingFor. The wait itself is a workflow timer.
CREATE TABLE waits (
    org_id     text        NOT NULL,
    run_id     text        NOT NULL,
    step       integer     NOT NULL,
    item       integer     NOT NULL,
    reason     text        NOT NULL,
    wait_until timestamptz NOT NULL,
    PRIMARY KEY (org_id, run_id, step, item)
);
