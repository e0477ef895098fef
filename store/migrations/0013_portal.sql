-- A replaced link is remembered, so that who opens it learns that there is a newer one.
ALTER TABLE portal_links DROP CONSTRAINT portal_links_pkey;
ALTER TABLE portal_links DROP CONSTRAINT portal_links_hash_key;
ALTER TABLE portal_links ADD PRIMARY KEY (hash);
ALTER TABLE portal_links ADD COLUMN replaced_at timestamptz;
CREATE UNIQUE INDEX portal_links_current ON portal_links (org_id, end_user_id) WHERE replaced_at IS NULL;

-- Sign-ins at systems (OAuth) that were begun in a session of the portal, by the SHA-256
-- of their state; sealed is the PKCE verifier.
CREATE TABLE portal_signins (
    state       bytea       PRIMARY KEY,
    session     bytea       NOT NULL REFERENCES portal_sessions (hash) ON DELETE CASCADE,
    org_id      text        NOT NULL,
    end_user_id uuid        NOT NULL,
    system_id   text        NOT NULL,
    environment text        NOT NULL,
    sealed      bytea       NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX portal_signins_by_session ON portal_signins (session);
