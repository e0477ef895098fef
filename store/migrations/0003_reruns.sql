-- The names of a run's run-time credentials, never their values: a rerun must be given the same ones.
ALTER TABLE runs ADD COLUMN credential_names text[];
