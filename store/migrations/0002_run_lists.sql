-- Lists of runs with every filter stay fast at millions of runs. Common values (runs that
-- succeeded, from the API) are found by walking the newest; rare ones have partial indexes,
-- which cost nothing for the common ones.
CREATE INDEX runs_by_user ON runs (org_id, user_id, started_at DESC, id DESC);
CREATE INDEX runs_unsuccessful ON runs (org_id, status, started_at DESC, id DESC) WHERE status IN ('failed', 'aborted');
CREATE INDEX runs_other_sources ON runs (org_id, request_source, started_at DESC, id DESC) WHERE request_source <> 'api';
CREATE INDEX runs_by_parent ON runs (org_id, parent_run_id, started_at DESC, id DESC) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_by_rerun ON runs (org_id, rerun_of, started_at DESC, id DESC) WHERE rerun_of IS NOT NULL;
