-- The current schema, as all migrations together make it. Written by
-- `go test ./store -run SchemaFile -update`; do not edit.

CREATE TABLE api_keys (
    org_id text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    user_id text NOT NULL,
    tools text[],
    hash bytea NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone,
    end_user_id uuid,
    CONSTRAINT api_keys_end_user CHECK (((role = 'end_user'::text) = (end_user_id IS NOT NULL))),
    CONSTRAINT api_keys_role_check CHECK ((role = ANY (ARRAY['admin'::text, 'member'::text, 'runner'::text, 'end_user'::text])))
);

CREATE TABLE audit (
    org_id text NOT NULL,
    id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    user_id text NOT NULL,
    action text NOT NULL,
    target_type text NOT NULL,
    target text NOT NULL,
    trace_id text NOT NULL
);

CREATE TABLE bulk_operations (
    org_id text NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    caller json NOT NULL,
    total integer NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    completed_at timestamp with time zone,
    CONSTRAINT bulk_operations_kind_check CHECK ((kind = ANY (ARRAY['cancel'::text, 'rerun'::text])))
);

CREATE TABLE bulk_runs (
    org_id text NOT NULL,
    operation_id text NOT NULL,
    place integer NOT NULL,
    run_id text NOT NULL,
    outcome text,
    error text,
    CONSTRAINT bulk_runs_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'skipped'::text, 'failed'::text])))
);

CREATE TABLE claims (
    org_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    item integer NOT NULL,
    page integer NOT NULL,
    worker text NOT NULL,
    effect boolean NOT NULL,
    claimed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE deleted_blobs (
    key text NOT NULL,
    org_id text NOT NULL,
    run_id text NOT NULL
);

CREATE TABLE deliveries (
    org_id text NOT NULL,
    id text NOT NULL,
    run_id text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp(),
    scheduled boolean DEFAULT true NOT NULL,
    rounds integer DEFAULT 1 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    asked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT deliveries_check CHECK (((status = 'pending'::text) = (next_attempt_at IS NOT NULL))),
    CONSTRAINT deliveries_check1 CHECK ((started <= rounds)),
    CONSTRAINT deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])))
);

CREATE TABLE delivery_attempts (
    org_id text NOT NULL,
    delivery_id text NOT NULL,
    round integer NOT NULL,
    number integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    duration_ms bigint NOT NULL,
    response_status integer,
    error text
);

CREATE TABLE end_user_credentials (
    org_id text NOT NULL,
    end_user_id uuid NOT NULL,
    system_id text NOT NULL,
    sealed bytea NOT NULL,
    renewer text,
    renew_until timestamp with time zone,
    token_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE end_users (
    org_id text NOT NULL,
    id uuid NOT NULL,
    external_id text,
    email text,
    name text,
    metadata json,
    allowed_systems text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE files (
    org_id text NOT NULL,
    run_id text NOT NULL,
    key text NOT NULL,
    step integer,
    item integer,
    page integer,
    filename text NOT NULL,
    content_type text NOT NULL,
    size bigint NOT NULL,
    blob text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE hook_calls (
    org_id text NOT NULL,
    run_id text NOT NULL,
    headers json NOT NULL,
    is_text boolean NOT NULL,
    encoding smallint DEFAULT 0 NOT NULL,
    body bytea,
    blob text,
    CONSTRAINT hook_calls_check CHECK (((body IS NULL) <> (blob IS NULL)))
);
ALTER TABLE ONLY hook_calls ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE hook_keys (
    org_id text NOT NULL,
    tool_id text NOT NULL,
    key bytea NOT NULL,
    run_id text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE organizations (
    id text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE pages (
    org_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    item integer NOT NULL,
    page integer NOT NULL,
    error text,
    records bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    encoding smallint DEFAULT 0 NOT NULL,
    body bytea,
    blob text,
    next json,
    cursor text,
    done boolean NOT NULL,
    ended_by text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    state json,
    CONSTRAINT pages_item_check CHECK ((item >= 0)),
    CONSTRAINT pages_page_check CHECK ((page >= 1)),
    CONSTRAINT pages_step_check CHECK ((step >= 0))
);
ALTER TABLE ONLY pages ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE portal_links (
    org_id text NOT NULL,
    end_user_id uuid NOT NULL,
    hash bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    replaced_at timestamp with time zone
);

CREATE TABLE portal_sessions (
    hash bytea NOT NULL,
    org_id text NOT NULL,
    end_user_id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE portal_signins (
    state bytea NOT NULL,
    session bytea NOT NULL,
    org_id text NOT NULL,
    end_user_id uuid NOT NULL,
    system_id text NOT NULL,
    environment text NOT NULL,
    sealed bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE run_credentials (
    org_id text NOT NULL,
    run_id text NOT NULL,
    sealed bytea NOT NULL
);

CREATE TABLE run_states (
    org_id text NOT NULL,
    run_id text NOT NULL,
    seq bigint NOT NULL,
    state json NOT NULL
);

CREATE TABLE runs (
    org_id text NOT NULL,
    id text NOT NULL,
    tool_id text NOT NULL,
    tool_version bigint NOT NULL,
    status text DEFAULT 'running'::text NOT NULL,
    error text,
    inputs bytea NOT NULL,
    options json NOT NULL,
    request_source text NOT NULL,
    mode text NOT NULL,
    trace_id text NOT NULL,
    user_id text NOT NULL,
    parent_run_id text,
    rerun_of text,
    warnings text[],
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    completed_at timestamp with time zone,
    dispatched boolean DEFAULT false NOT NULL,
    checked_at timestamp with time zone,
    data_step integer,
    data_bytes bigint,
    data_encoding smallint,
    data bytea,
    data_blob text,
    credential_names text[],
    link integer DEFAULT 1 NOT NULL,
    deadline timestamp with time zone,
    settled boolean DEFAULT false NOT NULL,
    end_user_id text,
    CONSTRAINT runs_check CHECK (((status = 'running'::text) = (completed_at IS NULL))),
    CONSTRAINT runs_check1 CHECK (((status = ANY (ARRAY['failed'::text, 'aborted'::text])) = (error IS NOT NULL))),
    CONSTRAINT runs_check2 CHECK (((status = 'success'::text) OR ((data IS NULL) AND (data_blob IS NULL) AND (data_step IS NULL)))),
    CONSTRAINT runs_mode_check CHECK ((mode = ANY (ARRAY['prod'::text, 'dev'::text]))),
    CONSTRAINT runs_status_check CHECK ((status = ANY (ARRAY['running'::text, 'success'::text, 'failed'::text, 'aborted'::text])))
);
ALTER TABLE ONLY runs ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE schema_migrations (
    number integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE selections (
    org_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    chunk integer NOT NULL,
    looped boolean NOT NULL,
    total integer NOT NULL,
    first_item integer NOT NULL,
    encoding smallint DEFAULT 0 NOT NULL,
    body bytea,
    blob text
);
ALTER TABLE ONLY selections ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE state_keys (
    org_id text NOT NULL,
    tool_id text NOT NULL,
    key text NOT NULL,
    version bigint NOT NULL,
    value json NOT NULL
);

CREATE TABLE state_removed (
    org_id text NOT NULL,
    tool_id text NOT NULL,
    key text NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE systems (
    org_id text NOT NULL,
    id text NOT NULL,
    environment text DEFAULT 'prod'::text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    url text DEFAULT ''::text NOT NULL,
    multi_tenancy_mode text DEFAULT 'disabled'::text NOT NULL,
    credential_keys text[],
    metadata json,
    sealed bytea NOT NULL,
    renewer text,
    renew_until timestamp with time zone,
    token_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT systems_environment_check CHECK ((environment = ANY (ARRAY['prod'::text, 'dev'::text]))),
    CONSTRAINT systems_multi_tenancy_mode_check CHECK ((multi_tenancy_mode = ANY (ARRAY['disabled'::text, 'enabled'::text])))
);

CREATE TABLE tool_version_systems (
    org_id text NOT NULL,
    system_id text NOT NULL,
    version_key bigint NOT NULL
);

CREATE TABLE tool_versions (
    key bigint NOT NULL,
    org_id text NOT NULL,
    tool_id text NOT NULL,
    version text NOT NULL,
    document json NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted boolean DEFAULT false NOT NULL
);

ALTER TABLE tool_versions ALTER COLUMN key ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tool_versions_key_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tools (
    org_id text NOT NULL,
    id text NOT NULL,
    version_key bigint NOT NULL,
    archived boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    state_seq bigint DEFAULT 0 NOT NULL,
    state_floor bigint DEFAULT 0 NOT NULL
);

CREATE TABLE waits (
    org_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    item integer NOT NULL,
    reason text NOT NULL,
    wait_until timestamp with time zone NOT NULL
);

CREATE TABLE webhook_secrets (
    org_id text NOT NULL,
    id text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone
);

CREATE TABLE workers (
    id text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lease_until timestamp with time zone NOT NULL
);

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_hash_key UNIQUE (hash);

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY bulk_operations
    ADD CONSTRAINT bulk_operations_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY bulk_runs
    ADD CONSTRAINT bulk_runs_pkey PRIMARY KEY (org_id, operation_id, place);

ALTER TABLE ONLY claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (org_id, run_id, step, item, page);

ALTER TABLE ONLY deleted_blobs
    ADD CONSTRAINT deleted_blobs_pkey PRIMARY KEY (key);

ALTER TABLE ONLY deliveries
    ADD CONSTRAINT deliveries_org_id_run_id_key UNIQUE (org_id, run_id);

ALTER TABLE ONLY deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY delivery_attempts
    ADD CONSTRAINT delivery_attempts_pkey PRIMARY KEY (org_id, delivery_id, round, number);

ALTER TABLE ONLY end_user_credentials
    ADD CONSTRAINT end_user_credentials_pkey PRIMARY KEY (org_id, end_user_id, system_id);

ALTER TABLE ONLY end_users
    ADD CONSTRAINT end_users_org_id_external_id_key UNIQUE (org_id, external_id);

ALTER TABLE ONLY end_users
    ADD CONSTRAINT end_users_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY files
    ADD CONSTRAINT files_pkey PRIMARY KEY (org_id, run_id, key);

ALTER TABLE ONLY hook_calls
    ADD CONSTRAINT hook_calls_pkey PRIMARY KEY (org_id, run_id);

ALTER TABLE ONLY hook_keys
    ADD CONSTRAINT hook_keys_pkey PRIMARY KEY (org_id, tool_id, key);

ALTER TABLE ONLY organizations
    ADD CONSTRAINT organizations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pages
    ADD CONSTRAINT pages_pkey PRIMARY KEY (org_id, run_id, step, item, page);

ALTER TABLE ONLY portal_links
    ADD CONSTRAINT portal_links_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY portal_sessions
    ADD CONSTRAINT portal_sessions_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY portal_signins
    ADD CONSTRAINT portal_signins_pkey PRIMARY KEY (state);

ALTER TABLE ONLY run_credentials
    ADD CONSTRAINT run_credentials_pkey PRIMARY KEY (org_id, run_id);

ALTER TABLE ONLY run_states
    ADD CONSTRAINT run_states_pkey PRIMARY KEY (org_id, run_id);

ALTER TABLE ONLY runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY selections
    ADD CONSTRAINT selections_pkey PRIMARY KEY (org_id, run_id, step, chunk);

ALTER TABLE ONLY state_keys
    ADD CONSTRAINT state_keys_pkey PRIMARY KEY (org_id, tool_id, key);

ALTER TABLE ONLY state_removed
    ADD CONSTRAINT state_removed_pkey PRIMARY KEY (org_id, tool_id, key);

ALTER TABLE ONLY systems
    ADD CONSTRAINT systems_pkey PRIMARY KEY (org_id, id, environment);

ALTER TABLE ONLY tool_version_systems
    ADD CONSTRAINT tool_version_systems_pkey PRIMARY KEY (org_id, system_id, version_key);

ALTER TABLE ONLY tool_versions
    ADD CONSTRAINT tool_versions_pkey PRIMARY KEY (key);

ALTER TABLE ONLY tools
    ADD CONSTRAINT tools_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (org_id, run_id, step, item);

ALTER TABLE ONLY webhook_secrets
    ADD CONSTRAINT webhook_secrets_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX api_keys_by_end_user ON api_keys USING btree (org_id, end_user_id) WHERE (end_user_id IS NOT NULL);

CREATE INDEX audit_newest ON audit USING btree (org_id, created_at DESC, id DESC);

CREATE INDEX bulk_open ON bulk_operations USING btree (created_at) WHERE (completed_at IS NULL);

CREATE INDEX deliveries_due ON deliveries USING btree (next_attempt_at) WHERE (status = 'pending'::text);

CREATE INDEX deliveries_pending ON deliveries USING btree (created_at) WHERE (status = 'pending'::text);

CREATE INDEX deliveries_unstarted ON deliveries USING btree (asked_at) WHERE (started < rounds);

CREATE INDEX end_user_credentials_by_system ON end_user_credentials USING btree (org_id, system_id);

CREATE INDEX end_users_newest ON end_users USING btree (org_id, created_at DESC, id DESC);

CREATE INDEX hook_keys_oldest ON hook_keys USING btree (created_at);

CREATE UNIQUE INDEX portal_links_current ON portal_links USING btree (org_id, end_user_id) WHERE (replaced_at IS NULL);

CREATE INDEX portal_sessions_by_end_user ON portal_sessions USING btree (org_id, end_user_id);

CREATE INDEX portal_signins_by_session ON portal_signins USING btree (session);

CREATE INDEX runs_aborted ON runs USING btree (completed_at) WHERE (status = 'aborted'::text);

CREATE INDEX runs_by_end_user ON runs USING btree (org_id, end_user_id, started_at DESC, id DESC) WHERE (end_user_id IS NOT NULL);

CREATE INDEX runs_by_parent ON runs USING btree (org_id, parent_run_id, started_at DESC, id DESC) WHERE (parent_run_id IS NOT NULL);

CREATE INDEX runs_by_rerun ON runs USING btree (org_id, rerun_of, started_at DESC, id DESC) WHERE (rerun_of IS NOT NULL);

CREATE INDEX runs_by_tool ON runs USING btree (org_id, tool_id, started_at DESC, id DESC);

CREATE INDEX runs_by_user ON runs USING btree (org_id, user_id, started_at DESC, id DESC);

CREATE INDEX runs_deadline ON runs USING btree (deadline) WHERE (status = 'running'::text);

CREATE INDEX runs_newest ON runs USING btree (org_id, started_at DESC, id DESC);

CREATE INDEX runs_other_sources ON runs USING btree (org_id, request_source, started_at DESC, id DESC) WHERE (request_source <> 'api'::text);

CREATE INDEX runs_running ON runs USING btree (COALESCE(checked_at, started_at)) WHERE (status = 'running'::text);

CREATE INDEX runs_undispatched ON runs USING btree (started_at) WHERE ((status = 'running'::text) AND (NOT dispatched));

CREATE INDEX runs_unsettled ON runs USING btree (COALESCE(checked_at, completed_at)) WHERE ((status = 'aborted'::text) AND (NOT settled));

CREATE INDEX runs_unsuccessful ON runs USING btree (org_id, status, started_at DESC, id DESC) WHERE (status = ANY (ARRAY['failed'::text, 'aborted'::text]));

CREATE INDEX state_removed_by_version ON state_removed USING btree (org_id, tool_id, version);

CREATE INDEX systems_newest ON systems USING btree (org_id, created_at DESC, id DESC, environment);

CREATE UNIQUE INDEX tool_versions_live ON tool_versions USING btree (org_id, tool_id, version) WHERE (NOT deleted);

CREATE INDEX tools_newest ON tools USING btree (org_id, created_at DESC, id DESC);

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_org_id_end_user_id_fkey FOREIGN KEY (org_id, end_user_id) REFERENCES end_users(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY audit
    ADD CONSTRAINT audit_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY bulk_operations
    ADD CONSTRAINT bulk_operations_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY bulk_runs
    ADD CONSTRAINT bulk_runs_org_id_operation_id_fkey FOREIGN KEY (org_id, operation_id) REFERENCES bulk_operations(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY deliveries
    ADD CONSTRAINT deliveries_org_id_run_id_fkey FOREIGN KEY (org_id, run_id) REFERENCES runs(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY delivery_attempts
    ADD CONSTRAINT delivery_attempts_org_id_delivery_id_fkey FOREIGN KEY (org_id, delivery_id) REFERENCES deliveries(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY end_user_credentials
    ADD CONSTRAINT end_user_credentials_org_id_end_user_id_fkey FOREIGN KEY (org_id, end_user_id) REFERENCES end_users(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY end_users
    ADD CONSTRAINT end_users_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY hook_calls
    ADD CONSTRAINT hook_calls_org_id_run_id_fkey FOREIGN KEY (org_id, run_id) REFERENCES runs(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY portal_links
    ADD CONSTRAINT portal_links_org_id_end_user_id_fkey FOREIGN KEY (org_id, end_user_id) REFERENCES end_users(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY portal_sessions
    ADD CONSTRAINT portal_sessions_org_id_end_user_id_fkey FOREIGN KEY (org_id, end_user_id) REFERENCES end_users(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY portal_signins
    ADD CONSTRAINT portal_signins_session_fkey FOREIGN KEY (session) REFERENCES portal_sessions(hash) ON DELETE CASCADE;

ALTER TABLE ONLY run_credentials
    ADD CONSTRAINT run_credentials_org_id_run_id_fkey FOREIGN KEY (org_id, run_id) REFERENCES runs(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY run_states
    ADD CONSTRAINT run_states_org_id_run_id_fkey FOREIGN KEY (org_id, run_id) REFERENCES runs(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY runs
    ADD CONSTRAINT runs_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY runs
    ADD CONSTRAINT runs_tool_version_fkey FOREIGN KEY (tool_version) REFERENCES tool_versions(key);

ALTER TABLE ONLY state_keys
    ADD CONSTRAINT state_keys_org_id_tool_id_fkey FOREIGN KEY (org_id, tool_id) REFERENCES tools(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY state_removed
    ADD CONSTRAINT state_removed_org_id_tool_id_fkey FOREIGN KEY (org_id, tool_id) REFERENCES tools(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY systems
    ADD CONSTRAINT systems_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY tool_version_systems
    ADD CONSTRAINT tool_version_systems_version_key_fkey FOREIGN KEY (version_key) REFERENCES tool_versions(key) ON DELETE CASCADE;

ALTER TABLE ONLY tool_versions
    ADD CONSTRAINT tool_versions_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY tools
    ADD CONSTRAINT tools_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);

ALTER TABLE ONLY tools
    ADD CONSTRAINT tools_version_key_fkey FOREIGN KEY (version_key) REFERENCES tool_versions(key);

ALTER TABLE ONLY webhook_secrets
    ADD CONSTRAINT webhook_secrets_org_id_fkey FOREIGN KEY (org_id) REFERENCES organizations(id);
