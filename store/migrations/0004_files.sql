-- Files that runs made: binary answers, attachments, what transforms put into __files__. Their
-- content is always a blob. step, item and page are those of the page that a file goes with,
-- null for one that an outputTransform made.
CREATE TABLE files (
    org_id       text        NOT NULL,
    run_id       text        NOT NULL,
    key          text        NOT NULL,
    step         integer,
    item         integer,
    page         integer,
    filename     text        NOT NULL,
    content_type text        NOT NULL,
    size         bigint      NOT NULL,
    blob         text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, run_id, key)
);
