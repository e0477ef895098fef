-- Blobs of runs that retention has deleted, until they are removed from the blob store too.
CREATE TABLE deleted_blobs (
    key    text PRIMARY KEY,
    org_id text NOT NULL,
    run_id text NOT NULL
);
