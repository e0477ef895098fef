-- Whether the workflow of an aborted run is known to have ended: until then the sweeper
-- cancels it again. (The index runs_aborted is for the release before.)
ALTER TABLE runs ADD COLUMN settled boolean NOT NULL DEFAULT false;
CREATE INDEX runs_unsettled ON runs (coalesce(checked_at, completed_at)) WHERE status = 'aborted' AND NOT settled;
