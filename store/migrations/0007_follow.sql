-- What follows a run: its place in a chain, and its callback.
ALTER TABLE runs ADD COLUMN link integer NOT NULL DEFAULT 1;

-- Secrets by which receivers check callbacks, sealed.
CREATE TABLE webhook_secrets (
    org_id     text NOT NULL REFERENCES organizations (id),
    id         text NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    PRIMARY KEY (org_id, id)
);

-- One callback of a run. Its address stays in the run's options. A round is one workflow
-- that makes attempts: the first by the schedule, each further one a redelivery.
CREATE TABLE deliveries (
    org_id          text NOT NULL,
    id              text NOT NULL,
    run_id          text NOT NULL,
    status          text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at timestamptz DEFAULT clock_timestamp(),
    scheduled       boolean NOT NULL DEFAULT true,  -- the schedule goes on
    rounds          integer NOT NULL DEFAULT 1,     -- asked for
    started         integer NOT NULL DEFAULT 0,     -- whose workflows are known to have started
    asked_at        timestamptz NOT NULL DEFAULT clock_timestamp(), -- when the last round was
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, run_id),
    FOREIGN KEY (org_id, run_id) REFERENCES runs (org_id, id) ON DELETE CASCADE,
    CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL)),
    CHECK (started <= rounds)
);

CREATE INDEX deliveries_unstarted ON deliveries (asked_at) WHERE started < rounds;
CREATE INDEX deliveries_pending ON deliveries (created_at) WHERE status = 'pending';
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE status = 'pending';

CREATE TABLE delivery_attempts (
    org_id          text NOT NULL,
    delivery_id     text NOT NULL,
    round           integer NOT NULL,
    number          integer NOT NULL,
    started_at      timestamptz NOT NULL,
    duration_ms     bigint NOT NULL,
    response_status integer,
    error           text,
    PRIMARY KEY (org_id, delivery_id, round, number),
    FOREIGN KEY (org_id, delivery_id) REFERENCES deliveries (org_id, id) ON DELETE CASCADE
);
