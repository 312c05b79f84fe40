-- The tables of a ledger in PostgreSQL. sqlite/schema.sql has the same model in the same order.
--
-- Times are Unix milliseconds, states are numbers. In a table that is often updated, columns
-- that never change come first: an update then logs only the rest.

-- Refuses what its trigger matches, with the trigger's sentence.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- The ledger's key, its anchor and its settings.
CREATE TABLE meta (
    key text PRIMARY KEY,
    value text NOT NULL
);

-- Work items. `spec` contains everything that an item was ingested as.
--
-- The fill factor leaves room beside every row for the versions that one group makes of it: a claim of a hundred neighbours
-- fills whole pages, and a version that finds no room on its page costs an entry in every index.
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
    progressed_at bigint,
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
    CONSTRAINT work_state CHECK ({state is known}),
    CONSTRAINT work_numbers CHECK (seq >= 1 AND fence >= 0 AND attempt >= 0 AND open_waits >= 0 AND generation >= 1),
    CONSTRAINT work_run CHECK (system <> 'scheduler' OR run_id <> ''),
    CONSTRAINT work_session CHECK ((session IS NULL) = (session_lock IS NULL)),
    CONSTRAINT work_lease CHECK (
        CASE
            WHEN {state is leased} THEN lease_fence IS NOT NULL AND lapsed_at IS NULL
            WHEN {state is resumable} THEN lease_fence IS NULL OR lapsed_at IS NOT NULL
            ELSE lease_fence IS NULL
        END
    ),
    CONSTRAINT work_lease_whole CHECK (
        (lease_fence IS NULL) = (expires_at IS NULL) AND (lease_fence IS NULL) = (renewed_at IS NULL)
        AND (lease_fence IS NULL OR lease_fence = fence)
    ),
    CONSTRAINT work_retry CHECK ({state is not retry_scheduled} OR next_retry_at IS NOT NULL),
    -- An item that does not progress says why.
    CONSTRAINT work_reason CHECK (reason IS NOT NULL OR NOT {state is halted}),
    CONSTRAINT work_waits CHECK (open_waits = 0 OR {state is waiting})
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);

CREATE INDEX work_parent ON work (parent) WHERE parent IS NOT NULL;

-- Every tenant may use any correlation or workflow id: a query of one tenant reads only its own items.
CREATE INDEX work_correlation ON work (correlation_id, tenant, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id, tenant, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX work_of_session ON work (session) WHERE session IS NOT NULL;

-- A row agrees with the last event of its item. That a terminal state is final follows: an event moves an item only from the
-- state that the one before it left, and no move leads out of a terminal state. One trigger for each statement: a row's own
-- triggers would read its old version once more. Scalar lookups, no joins: each is one probe of an
-- index, no matter what the planner expects of the tables.
CREATE FUNCTION work_is_its_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken uuid;
BEGIN
    SELECT n.id INTO broken FROM saved n
    WHERE (SELECT e.seq = n.seq AND e.to_state = n.state AND e.hash = n.head FROM event e
        WHERE e.work = n.id ORDER BY e.seq DESC LIMIT 1) IS NOT TRUE LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% does not match its last event', broken
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER work_is_its_events AFTER UPDATE ON work REFERENCING NEW TABLE AS saved
    FOR EACH STATEMENT EXECUTE FUNCTION work_is_its_events();

-- Named columns: an update that names none of them does not fire it. AFTER: a row trigger before an update locks the row once
-- more.
CREATE TRIGGER work_stays AFTER UPDATE OF id, created_at, generation, priority, session_lock, parent, tenant,
    system, source_id, run_id, kind, session, correlation_id, workflow_id, spec ON work
    FOR EACH ROW EXECUTE FUNCTION refuse('the specification of a work item never changes');

CREATE FUNCTION work_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM removed r
        WHERE {r.state is open} OR NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = r.id))
    THEN
        RAISE EXCEPTION 'works are never deleted' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER work_kept AFTER DELETE ON work REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION work_pruned();
CREATE TRIGGER work_never_emptied BEFORE TRUNCATE ON work
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('works are never deleted');

CREATE SEQUENCE event_number;

-- The log. The index of (work, seq) is kept, unlike in SQLite: PostgreSQL logs an entry of an index, not the page that it comes
-- to lie on.
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
    request bigint, -- of a claim
    actor_name text, -- the principal's label at that time
    PRIMARY KEY (epoch, txn, number),
    CONSTRAINT event_seq UNIQUE (work, seq),
    CONSTRAINT event_birth CHECK ((seq = 1) = (from_state IS NULL)),
    CONSTRAINT event_move CHECK (@moves)
);

-- The event of a claim contains everything that an attempt begins with; it is found by its request.
CREATE INDEX event_request ON event (request) WHERE request IS NOT NULL;

-- Events are appended, each to the one before it.
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

-- Only an erasure edits an event: free text, payload, evidence and salt go, everything else stays.
CREATE TRIGGER event_unchanged BEFORE UPDATE ON event
    FOR EACH ROW WHEN (
        (OLD.epoch, OLD.txn, OLD.number, OLD.work, OLD.seq, OLD.at, OLD.type, OLD.from_state, OLD.to_state, OLD.request,
         OLD.actor_type, OLD.actor_id, OLD.actor_name, OLD.attempt, OLD.step, OLD.fence, OLD.data, OLD.digest,
         OLD.prev_hash, OLD.hash)
        IS DISTINCT FROM
        (NEW.epoch, NEW.txn, NEW.number, NEW.work, NEW.seq, NEW.at, NEW.type, NEW.from_state, NEW.to_state, NEW.request,
         NEW.actor_type, NEW.actor_id, NEW.actor_name, NEW.attempt, NEW.step, NEW.fence, NEW.data, NEW.digest,
         NEW.prev_hash, NEW.hash)
        OR NEW.message IS NOT NULL AND NEW.message IS DISTINCT FROM OLD.message
        OR NEW.payload IS NOT NULL AND NEW.payload IS DISTINCT FROM OLD.payload
        OR NEW.evidence IS NOT NULL AND NEW.evidence IS DISTINCT FROM OLD.evidence
        OR NEW.salt IS NOT NULL AND NEW.salt IS DISTINCT FROM OLD.salt
    )
    EXECUTE FUNCTION refuse('an event changes only by erasure');

-- Pruning deletes events; their places and hashes stay as links.
CREATE FUNCTION event_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM removed r
        WHERE NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = r.work)
        OR NOT EXISTS (SELECT 1 FROM link l WHERE (l.epoch, l.txn, l.number, l.hash) = (r.epoch, r.txn, r.number, r.hash)))
    THEN
        RAISE EXCEPTION 'events are never deleted' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER event_kept AFTER DELETE ON event REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION event_pruned();
CREATE TRIGGER event_never_emptied BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are never deleted');

-- The ends of attempts, each written once: a row that begins at the claim would have a second version at its end.
CREATE TABLE attempt_end (
    work uuid NOT NULL,
    fence bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome text NOT NULL,
    body_hash bytea,
    ack text,
    error text,
    usage text, -- a JSON list, as the request that ended the attempt said it
    PRIMARY KEY (work, fence)
);

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

-- The open waits in the order of their lists, those of one tenant, and by kind with their deadlines.
CREATE INDEX wait_open ON wait (opened_at, id) WHERE state = 'open';
CREATE INDEX wait_tenant ON wait (tenant, opened_at, id) WHERE state = 'open';
CREATE INDEX wait_kind ON wait (kind, deadline_at) WHERE state = 'open';

-- Answers that came before their waits.
CREATE TABLE kept (
    tenant text NOT NULL,
    reference text NOT NULL,
    payload text NOT NULL,
    actor text NOT NULL,
    evidence text NOT NULL,
    kept_at bigint NOT NULL,
    mac bytea, -- under the ledger's key, as in every table whose rows no event accounts for
    PRIMARY KEY (tenant, reference)
);

-- A narrow copy of every work item: states, timers and sessions churn here, and the wide row stays HOT. Every writer knows the
-- state that it moves an item from: the primary key finds the row and lists the state.
CREATE TABLE status (
    work uuid NOT NULL,
    due_at bigint,
    created_at bigint NOT NULL,
    state smallint NOT NULL,
    tenant text NOT NULL,
    session text,
    PRIMARY KEY (state, work)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX status_due ON status (due_at, work) WHERE due_at IS NOT NULL;

-- A list of one tenant reads no row of another.
CREATE INDEX status_tenant ON status (tenant, state, work);

-- At most one item of a session is held.
CREATE UNIQUE INDEX status_holder ON status (tenant, session)
    WHERE session IS NOT NULL AND {state is held};

-- The queue of a session.
CREATE INDEX status_head ON status (tenant, session, created_at, work)
    WHERE session IS NOT NULL AND {state is pending};

-- Exactly the claimable items. A queue is one tenant, kind and source system: a claim reads the queues of its own tenants
-- only.
-- Names are compared by their bytes, which costs least.
CREATE TABLE ready (
    created_at bigint NOT NULL,
    work uuid NOT NULL,
    priority smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    system text COLLATE "C" NOT NULL,
    session text,
    bound text,
    PRIMARY KEY (tenant, kind, system, priority, created_at, work)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX ready_session ON ready (tenant, session) WHERE session IS NOT NULL;

-- Commands: recorded side effects.
CREATE TABLE command (
    id uuid PRIMARY KEY,
    work uuid NOT NULL,
    created_at bigint NOT NULL,
    key bytea NOT NULL,
    input_hash bytea NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    target text NOT NULL,
    executor text NOT NULL,
    spec text NOT NULL,

    seq bigint NOT NULL,
    updated_at bigint NOT NULL,
    due_at bigint,
    dispatches integer NOT NULL,
    state smallint NOT NULL,
    superseded boolean NOT NULL,
    needs_person boolean NOT NULL,
    blocked text,
    body text NOT NULL,
    CONSTRAINT command_state CHECK ({command state is known}),
    CONSTRAINT command_executor CHECK (executor = 'worker' OR executor = 'http' OR executor = 'exec'),
    CONSTRAINT command_hashes CHECK (length(key) = 32 AND length(input_hash) = 32),
    CONSTRAINT command_blocked CHECK (({command state is blocked}) = (blocked IS NOT NULL)),
    CONSTRAINT command_superseded CHECK (NOT superseded OR {command state is cancelled}),
    CONSTRAINT command_person CHECK (NOT needs_person OR {command state is uncertain}),
    CONSTRAINT command_sent CHECK (dispatches > 0 OR dispatches = 0 AND NOT {command state is sent})
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);

-- One intent is one command, except for those that a later attempt superseded before they were sent.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE NOT superseded;

-- A command is saved after its events: the last of them is an event of a command.
CREATE FUNCTION command_is_its_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken uuid;
BEGIN
    SELECT n.id INTO broken FROM saved n
    WHERE (SELECT left(e.type, 8) FROM event e WHERE e.work = n.work AND e.seq = n.seq)
        IS DISTINCT FROM 'command_' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'command % moves only by events', broken
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER command_born AFTER INSERT ON command REFERENCING NEW TABLE AS saved
    FOR EACH STATEMENT EXECUTE FUNCTION command_is_its_events();
CREATE TRIGGER command_is_its_events AFTER UPDATE ON command REFERENCING NEW TABLE AS saved
    FOR EACH STATEMENT EXECUTE FUNCTION command_is_its_events();
CREATE TRIGGER command_moved BEFORE UPDATE ON command
    FOR EACH ROW WHEN (NEW.seq < OLD.seq OR NEW.seq = OLD.seq AND NEW.state <> OLD.state)
    EXECUTE FUNCTION refuse('a command moves only by events');

-- A cancelled command that was sent before takes a receipt that comes late: it happened. Otherwise succeeded and cancelled
-- commands stay so.
CREATE TRIGGER command_end_stays BEFORE UPDATE ON command
    FOR EACH ROW WHEN (NEW.state <> OLD.state AND ({command OLD.state is succeeded} OR ({command OLD.state is cancelled} AND {command NEW.state is not succeeded})))
    EXECUTE FUNCTION refuse('a command that succeeded or was cancelled is final');
CREATE TRIGGER command_stays BEFORE UPDATE OF id, work, created_at, key, input_hash, tenant, tool, target,
    executor, spec ON command
    FOR EACH ROW EXECUTE FUNCTION refuse('an intent never changes');

CREATE FUNCTION command_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM removed r WHERE NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = r.work)) THEN
        RAISE EXCEPTION 'commands are never deleted' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER command_kept AFTER DELETE ON command REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION command_pruned();
CREATE TRIGGER command_never_emptied BEFORE TRUNCATE ON command
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('commands are never deleted');

-- A narrow copy of every command: lists and timers read it, and the wide row stays HOT.
CREATE TABLE command_status (
    command uuid PRIMARY KEY,
    work uuid NOT NULL,
    due_at bigint,
    line bigint, -- of ordered ones: their tool and target
    state smallint NOT NULL,
    duty smallint, -- whose turn it is when it is due
    tenant text NOT NULL,
    CONSTRAINT command_status_due CHECK ((duty IS NULL) = (due_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX command_status_state ON command_status (state, command);
CREATE INDEX command_work ON command_status (work, state);
CREATE INDEX command_due ON command_status (duty, due_at, command) WHERE due_at IS NOT NULL;
CREATE INDEX command_line ON command_status (line, command) WHERE line IS NOT NULL AND {command state is open};
CREATE INDEX command_tenant ON command_status (tenant, command);

-- Lookups that are due, for the workers of a tenant that make them.
CREATE INDEX command_lookup ON command_status (tenant, due_at, command) WHERE duty = 2 AND due_at IS NOT NULL;

CREATE TABLE budget (
    key text PRIMARY KEY,
    spent bigint NOT NULL,
    reserved bigint NOT NULL,
    CONSTRAINT budget_amounts CHECK (spent >= 0 AND reserved >= 0)
) WITH (fillfactor = 60);

-- Schedules are not part of the event-sourced state; a run of one makes a work item like any other. The body is the core's
-- record, the other columns are what it is found by.
CREATE TABLE schedule (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    due_at bigint, -- when the scheduler must look at it; NULL: never
    body text NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE INDEX schedule_due ON schedule (due_at) WHERE due_at IS NOT NULL;

-- The changes of schedules, with actor and reason. They outlive their schedules.
CREATE TABLE schedule_change (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    act text NOT NULL,
    reason text NOT NULL,
    plan text -- what it was set to
);

CREATE INDEX schedule_change_of ON schedule_change (tenant, name, number);

CREATE TRIGGER schedule_change_stays BEFORE UPDATE OR DELETE ON schedule_change
    FOR EACH ROW EXECUTE FUNCTION refuse('changes of schedules stay');
CREATE TRIGGER schedule_change_never_emptied BEFORE TRUNCATE ON schedule_change
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('changes of schedules stay');

-- The pauses of the intake, with actor and reason. The last row of a tenant is the current one. Not part of the event-sourced
-- state.
CREATE TABLE intake_change (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL, -- empty: every tenant
    paused boolean NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX intake_change_of ON intake_change (tenant, number);

CREATE TRIGGER intake_change_stays BEFORE UPDATE OR DELETE ON intake_change
    FOR EACH ROW EXECUTE FUNCTION refuse('changes of the intake stay');
CREATE TRIGGER intake_change_never_emptied BEFORE TRUNCATE ON intake_change
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('changes of the intake stay');

-- Credentials and their principals, persons and machines: not part of the event-sourced state. A principal is known by its id,
-- its name is a label. Access tokens are stored as SHA-256 only.
CREATE TABLE credential (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL,
    hash bytea NOT NULL UNIQUE,
    scopes text NOT NULL,
    tenants text, -- NULL: all
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    created_by text NOT NULL,
    principal uuid NOT NULL,
    principal_name text NOT NULL,
    kinds text, -- NULL: all
    worker text, -- NULL: any
    revoked_by text,
    revoked_reason text,
    mac bytea,
    CONSTRAINT credential_kind CHECK (kind = 'person' OR kind = 'machine'),
    CONSTRAINT credential_hash CHECK (length(hash) = 32),
    CONSTRAINT credential_revoked CHECK (
        (revoked_at IS NULL) = (revoked_by IS NULL) AND (revoked_at IS NULL) = (revoked_reason IS NULL)
    )
);

CREATE INDEX credential_principal ON credential (principal, id);

-- A tombstone keeps the identity of a pruned item from ever being used again.
--
-- It is written first, and may be taken back until the item is gone. The item is deleted when every transaction below the
-- barrier is over: one that began before the tombstone could be seen would otherwise find the identity free.
CREATE TABLE tombstone (
    work uuid PRIMARY KEY,
    barrier bigint,
    pruned_at bigint NOT NULL,
    generation integer NOT NULL,
    gone boolean NOT NULL DEFAULT false,
    tenant text NOT NULL,
    system text NOT NULL,
    source_id text NOT NULL,
    run_id text NOT NULL,
    mac bytea,
    CONSTRAINT tombstone_identity UNIQUE (tenant, system, source_id, run_id, generation)
);

CREATE INDEX tombstone_pending ON tombstone (work) WHERE NOT gone;

CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone
    FOR EACH ROW WHEN (OLD.gone AND OLD.mac IS NOT NULL) EXECUTE FUNCTION refuse('tombstones stay');
CREATE TRIGGER tombstone_kept BEFORE DELETE ON tombstone
    FOR EACH ROW WHEN (OLD.gone) EXECUTE FUNCTION refuse('tombstones stay');
CREATE TRIGGER tombstone_never_emptied BEFORE TRUNCATE ON tombstone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('tombstones stay');

-- A link keeps the position and the hash of a pruned event, so that anchors made before still agree with the feed.
CREATE TABLE link (
    epoch integer NOT NULL,
    txn bigint NOT NULL,
    number bigint NOT NULL,
    hash bytea NOT NULL,
    work uuid,
    mac bytea,
    PRIMARY KEY (epoch, txn, number)
);

-- The record of each pruning, with actor and reason. The tombstones of a pruning have the same time.
CREATE TABLE pruning (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    ended_before bigint NOT NULL,
    works bigint NOT NULL,
    mac bytea
);

CREATE TRIGGER pruning_stays BEFORE UPDATE ON pruning
    FOR EACH ROW WHEN (OLD.mac IS NOT NULL) EXECUTE FUNCTION refuse('records of pruning stay');
CREATE TRIGGER pruning_kept BEFORE DELETE ON pruning
    FOR EACH ROW EXECUTE FUNCTION refuse('records of pruning stay');
CREATE TRIGGER pruning_never_emptied BEFORE TRUNCATE ON pruning
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('records of pruning stay');

-- Rows that applications insert in their own transactions: each committed one becomes a work item, and is deleted. `mark` and
-- `id` order the rows of a source: `mark` is the id of the last transaction that had ended at the insert, or of its own if that
-- is greater, so a row that was inserted after another one's commit comes after it.
CREATE TABLE tenure_intake (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mark bigint NOT NULL DEFAULT greatest(
        pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1
    ),
    created_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    tenant text NOT NULL DEFAULT 'default',
    source_system text NOT NULL,
    source_id text NOT NULL,
    source_run_id text NOT NULL DEFAULT '',
    kind text NOT NULL,
    disposition text NOT NULL,
    input text NOT NULL DEFAULT 'null', -- JSON
    priority integer NOT NULL DEFAULT 3,
    session text,
    correlation_id text,
    options text, -- a JSON object
    rejected_at bigint,
    reason text,
    CONSTRAINT tenure_intake_rejected CHECK ((rejected_at IS NULL) = (reason IS NULL))
);

CREATE INDEX tenure_intake_waiting ON tenure_intake (mark, id) WHERE rejected_at IS NULL;
CREATE INDEX tenure_intake_set_aside ON tenure_intake (rejected_at, id) WHERE rejected_at IS NOT NULL;

-- A hint only. A daemon that misses it looks within a second.
CREATE FUNCTION tenure_intake_hint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('tenure_intake', '');
    RETURN NULL;
END $$;

CREATE TRIGGER tenure_intake_hint AFTER INSERT OR UPDATE ON tenure_intake
    FOR EACH STATEMENT EXECUTE FUNCTION tenure_intake_hint();
