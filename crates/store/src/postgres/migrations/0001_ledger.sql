-- The ledger. Columns of `work` that never change come first: an update then logs only the rest.
-- {from_to} is the core's table of moves, filled in by the migration runner.

CREATE TABLE meta (
    key text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE work (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    generation integer NOT NULL,
    priority smallint NOT NULL,
    session_lock smallint,
    parent uuid,
    tenant text NOT NULL,
    system text NOT NULL,
    source_id text NOT NULL,
    run_id text NOT NULL,
    kind text NOT NULL,
    session text,
    correlation_id text,
    workflow_id text,
    spec text NOT NULL,
    state smallint NOT NULL,
    children boolean NOT NULL,
    waiters boolean NOT NULL,
    attempt integer NOT NULL,
    open_waits integer NOT NULL,
    seq bigint NOT NULL,
    fence bigint NOT NULL,
    lease_fence bigint,
    expires_at bigint,
    renewed_at bigint,
    lapsed_at bigint,
    next_retry_at bigint,
    due_at bigint,
    updated_at bigint NOT NULL,
    head bytea NOT NULL,
    renewed_by text,
    reason text,
    owner text,
    bound text,
    progress text,
    body text NOT NULL,
    CONSTRAINT work_identity UNIQUE (tenant, system, source_id, run_id, generation),
    CONSTRAINT work_state CHECK (state >= 0 AND state <= 16),
    CONSTRAINT work_numbers CHECK (seq >= 1 AND fence >= 0 AND attempt >= 0 AND open_waits >= 0 AND generation >= 1),
    CONSTRAINT work_run CHECK (system <> 'scheduler' OR run_id <> ''),
    CONSTRAINT work_session CHECK ((session IS NULL) = (session_lock IS NULL)),
    CONSTRAINT work_lease CHECK (
        CASE
            WHEN state = 1 OR state = 9 THEN lease_fence IS NOT NULL AND lapsed_at IS NULL
            WHEN state = 0 OR state = 7 OR state = 8 THEN lease_fence IS NULL OR lapsed_at IS NOT NULL
            ELSE lease_fence IS NULL
        END
    ),
    CONSTRAINT work_lease_whole CHECK (
        (lease_fence IS NULL) = (expires_at IS NULL) AND (lease_fence IS NULL) = (renewed_at IS NULL)
        AND (lease_fence IS NULL OR lease_fence = fence)
    ),
    CONSTRAINT work_retry CHECK (state <> 7 OR next_retry_at IS NOT NULL),
    CONSTRAINT work_reason CHECK (reason IS NOT NULL OR NOT ((state >= 2 AND state <= 6) OR (state >= 7 AND state <= 10))),
    CONSTRAINT work_waits CHECK (open_waits = 0 OR (state >= 2 AND state <= 6))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);

CREATE INDEX work_parent ON work (parent) WHERE parent IS NOT NULL;
CREATE INDEX work_correlation ON work (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX work_of_session ON work (session) WHERE session IS NOT NULL;

CREATE SEQUENCE event_number;

CREATE TABLE event (
    txn bigint NOT NULL,
    number bigint NOT NULL DEFAULT nextval('event_number'),
    seq bigint NOT NULL,
    at bigint NOT NULL,
    fence bigint,
    work uuid NOT NULL,
    epoch integer NOT NULL,
    attempt integer NOT NULL,
    from_state smallint,
    to_state smallint NOT NULL,
    prev_hash bytea NOT NULL,
    hash bytea NOT NULL,
    type text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    step text,
    data text NOT NULL,
    message text,
    payload text,
    evidence text,
    digest bytea,
    salt bytea,
    PRIMARY KEY (epoch, txn, number),
    CONSTRAINT event_seq UNIQUE (work, seq),
    CONSTRAINT event_birth CHECK ((seq = 1) = (from_state IS NULL)),
    CONSTRAINT event_move CHECK ({from_to})
);

CREATE TABLE attempt (
    work uuid NOT NULL,
    fence bigint NOT NULL,
    request bigint NOT NULL,
    claimed_at bigint NOT NULL,
    ended_at bigint,
    number integer NOT NULL,
    worker text NOT NULL,
    incarnation text NOT NULL,
    outcome text,
    body_hash bytea,
    ack text,
    error text,
    PRIMARY KEY (work, fence),
    CONSTRAINT attempt_end CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 60);

CREATE INDEX attempt_request ON attempt (request);

CREATE TABLE step (
    work uuid NOT NULL,
    ordinal integer NOT NULL,
    name text NOT NULL,
    input_hash bytea NOT NULL,
    begun_at bigint NOT NULL,
    completed_at bigint,
    result_work uuid,
    result_seq bigint,
    voided boolean NOT NULL,
    PRIMARY KEY (work, ordinal)
);

CREATE TABLE wait (
    id uuid PRIMARY KEY,
    work uuid NOT NULL,
    tenant text NOT NULL,
    reference text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    opened_at bigint NOT NULL,
    deadline_at bigint,
    ended_at bigint,
    answer_seq bigint,
    detail text NOT NULL,
    CONSTRAINT wait_end CHECK ((state = 'open') = (ended_at IS NULL))
);

CREATE INDEX wait_work ON wait (work);
CREATE INDEX wait_reference ON wait (tenant, reference);

CREATE TABLE kept (
    tenant text NOT NULL,
    reference text NOT NULL,
    payload text NOT NULL,
    actor text NOT NULL,
    evidence text NOT NULL,
    kept_at bigint NOT NULL,
    PRIMARY KEY (tenant, reference)
);

-- The narrow twin of each work: states, timers and sessions churn here, and the wide row stays HOT.
CREATE TABLE status (
    work uuid PRIMARY KEY,
    due_at bigint,
    created_at bigint NOT NULL,
    state smallint NOT NULL,
    tenant text NOT NULL,
    session text
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX status_due ON status (due_at, work) WHERE due_at IS NOT NULL;
CREATE INDEX status_state ON status (state, work);
CREATE UNIQUE INDEX status_holder ON status (tenant, session)
    WHERE session IS NOT NULL AND (state = 1 OR state = 8 OR state = 9);
CREATE INDEX status_head ON status (tenant, session, created_at, work)
    WHERE session IS NOT NULL AND (state = 0 OR state = 7);

-- A lane is a (system, kind); claims read the head of each lane that they ask for.
CREATE TABLE lane (
    id bigint PRIMARY KEY,
    system text NOT NULL,
    kind text NOT NULL,
    CONSTRAINT lane_name UNIQUE (system, kind)
);

-- Exactly the claimable works.
CREATE TABLE ready (
    lane bigint NOT NULL,
    created_at bigint NOT NULL,
    work uuid NOT NULL,
    priority smallint NOT NULL,
    tenant text NOT NULL,
    session text,
    bound text,
    PRIMARY KEY (lane, priority, created_at, work)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX ready_session ON ready (tenant, session) WHERE session IS NOT NULL;

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER event_kept BEFORE DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION refuse('events are never deleted');
CREATE TRIGGER event_never_emptied BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are never deleted');
CREATE TRIGGER event_unchanged BEFORE UPDATE ON event
    FOR EACH ROW WHEN (
        (OLD.epoch, OLD.txn, OLD.number, OLD.work, OLD.seq, OLD.at, OLD.type, OLD.from_state, OLD.to_state,
         OLD.actor_type, OLD.actor_id, OLD.attempt, OLD.step, OLD.fence, OLD.data, OLD.digest, OLD.prev_hash, OLD.hash)
        IS DISTINCT FROM
        (NEW.epoch, NEW.txn, NEW.number, NEW.work, NEW.seq, NEW.at, NEW.type, NEW.from_state, NEW.to_state,
         NEW.actor_type, NEW.actor_id, NEW.attempt, NEW.step, NEW.fence, NEW.data, NEW.digest, NEW.prev_hash, NEW.hash)
        OR NEW.message IS NOT NULL AND NEW.message IS DISTINCT FROM OLD.message
        OR NEW.payload IS NOT NULL AND NEW.payload IS DISTINCT FROM OLD.payload
        OR NEW.evidence IS NOT NULL AND NEW.evidence IS DISTINCT FROM OLD.evidence
        OR NEW.salt IS NOT NULL AND NEW.salt IS DISTINCT FROM OLD.salt
    )
    EXECUTE FUNCTION refuse('an event changes only by erasure');

CREATE TRIGGER work_end_stays BEFORE UPDATE ON work
    FOR EACH ROW WHEN (OLD.state >= 11 AND NEW.state <> OLD.state)
    EXECUTE FUNCTION refuse('ends never change');
CREATE TRIGGER work_moves_by_events BEFORE UPDATE ON work
    FOR EACH ROW WHEN (NEW.seq < OLD.seq OR NEW.seq = OLD.seq AND (NEW.state <> OLD.state OR NEW.head <> OLD.head))
    EXECUTE FUNCTION refuse('a work moves only by events');

-- Named columns: an update that names none of them never asks.
CREATE TRIGGER work_stays BEFORE UPDATE OF id, created_at, generation, priority, session_lock, parent, tenant,
    system, source_id, run_id, kind, session, correlation_id, workflow_id, spec ON work
    FOR EACH ROW EXECUTE FUNCTION refuse('what a work was ingested as never changes');
CREATE TRIGGER work_kept BEFORE DELETE ON work
    FOR EACH ROW EXECUTE FUNCTION refuse('works are never deleted');
CREATE TRIGGER work_never_emptied BEFORE TRUNCATE ON work
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('works are never deleted');

-- Scalar look-ups, and no joins: whatever the planner believes of the tables, each is one probe of an index.
CREATE FUNCTION event_follows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken uuid;
BEGIN
    SELECT n.work INTO broken FROM added n
    WHERE CASE WHEN n.seq > 1 THEN
        (SELECT p.hash FROM event p WHERE p.work = n.work AND p.seq = n.seq - 1 AND p.to_state = n.from_state)
        IS DISTINCT FROM n.prev_hash
    ELSE
        (SELECT w.seq FROM work w WHERE w.id = n.work) IS NULL
    END LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'an event of % does not follow the one before it', broken
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER event_follows AFTER INSERT ON event REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION event_follows();

CREATE FUNCTION work_is_its_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken uuid;
BEGIN
    SELECT n.id INTO broken FROM saved n
    WHERE (SELECT e.to_state FROM event e WHERE e.work = n.id AND e.seq = n.seq AND e.hash = n.head)
        IS DISTINCT FROM n.state LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% is not what its last event says', broken
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER work_is_its_events AFTER UPDATE ON work REFERENCING NEW TABLE AS saved
    FOR EACH STATEMENT EXECUTE FUNCTION work_is_its_events();
