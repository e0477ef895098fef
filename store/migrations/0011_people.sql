-- Keys of end users. A release before this one knows their role and lets them do nothing.
ALTER TABLE api_keys ADD COLUMN end_user_id uuid;
ALTER TABLE api_keys DROP CONSTRAINT api_keys_role_check;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_role_check CHECK (role IN ('admin', 'member', 'runner', 'end_user'));
ALTER TABLE api_keys ADD CONSTRAINT api_keys_end_user CHECK ((role = 'end_user') = (end_user_id IS NOT NULL));
ALTER TABLE api_keys ADD FOREIGN KEY (org_id, end_user_id) REFERENCES end_users (org_id, id) ON DELETE CASCADE;
CREATE INDEX api_keys_by_end_user ON api_keys (org_id, end_user_id) WHERE end_user_id IS NOT NULL;

-- For whom a run works, also after that end user was deleted: options say the same.
ALTER TABLE runs ADD COLUMN end_user_id text;
CREATE INDEX runs_by_end_user ON runs (org_id, end_user_id, started_at DESC, id DESC) WHERE end_user_id IS NOT NULL;

-- The portal link of an end user, of which there is at most one, by the SHA-256 of its token.
CREATE TABLE portal_links (
    org_id      text        NOT NULL,
    end_user_id uuid        NOT NULL,
    hash        bytea       NOT NULL UNIQUE,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (org_id, end_user_id),
    FOREIGN KEY (org_id, end_user_id) REFERENCES end_users (org_id, id) ON DELETE CASCADE
);

-- What portal links were exchanged for, by the SHA-256 of the cookie's text.
CREATE TABLE portal_sessions (
    hash        bytea       PRIMARY KEY,
    org_id      text        NOT NULL,
    end_user_id uuid        NOT NULL,
    expires_at  timestamptz NOT NULL,
    FOREIGN KEY (org_id, end_user_id) REFERENCES end_users (org_id, id) ON DELETE CASCADE
);
CREATE INDEX portal_sessions_by_end_user ON portal_sessions (org_id, end_user_id);

-- Who changed what. Rows are only ever added.
CREATE TABLE audit (
    org_id      text        NOT NULL REFERENCES organizations (id),
    id          uuid        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_id     text        NOT NULL,
    action      text        NOT NULL,
    target_type text        NOT NULL,
    target      text        NOT NULL,
    trace_id    text        NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX audit_newest ON audit (org_id, created_at DESC, id DESC);
