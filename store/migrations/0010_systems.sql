-- Systems with their sealed credentials, end users, and what end users connected. The
-- three columns about tokens say who renews an access token at the moment, until when
-- that claim holds, and when the stored one was obtained.
CREATE TABLE systems (
    org_id             text NOT NULL REFERENCES organizations (id),
    id                 text NOT NULL,
    environment        text NOT NULL DEFAULT 'prod' CHECK (environment IN ('prod', 'dev')),
    name               text NOT NULL DEFAULT '',
    url                text NOT NULL DEFAULT '',
    multi_tenancy_mode text NOT NULL DEFAULT 'disabled' CHECK (multi_tenancy_mode IN ('disabled', 'enabled')),
    credential_keys    text[],
    metadata           json,
    sealed             bytea NOT NULL,
    renewer            text,
    renew_until        timestamptz,
    token_at           timestamptz,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, id, environment)
);
CREATE INDEX systems_newest ON systems (org_id, created_at DESC, id DESC, environment);

CREATE TABLE end_users (
    org_id          text NOT NULL REFERENCES organizations (id),
    id              uuid NOT NULL,
    external_id     text,
    email           text,
    name            text,
    metadata        json,
    allowed_systems text[] NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, external_id)
);
CREATE INDEX end_users_newest ON end_users (org_id, created_at DESC, id DESC);

CREATE TABLE end_user_credentials (
    org_id      text NOT NULL,
    end_user_id uuid NOT NULL,
    system_id   text NOT NULL,
    sealed      bytea NOT NULL,
    renewer     text,
    renew_until timestamptz,
    token_at    timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, end_user_id, system_id),
    FOREIGN KEY (org_id, end_user_id) REFERENCES end_users (org_id, id) ON DELETE CASCADE
);
CREATE INDEX end_user_credentials_by_system ON end_user_credentials (org_id, system_id);
