-- The ledger. Ids are 16-byte UUIDs, times Unix milliseconds, states the numbers of core::State.
-- Triggers raise ROLLBACK, as the ledger's statements do: an ABORT where there are triggers makes SQLite
-- keep a journal of its own for every statement. Checks are chains of OR: an IN list makes it a table.

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What never changes comes first; what events change follows. The whole of what a work was ingested as
-- is the data of its first event: a row that every event rewrites is kept small.
CREATE TABLE work (
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant TEXT NOT NULL,
    system TEXT NOT NULL,
    source_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    session TEXT,
    parent BLOB,
    correlation_id TEXT, -- NULL where it is the work's own id
    workflow_id TEXT,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,

    state INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    head BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    lease_fence INTEGER,
    expires_at INTEGER,
    renewed_at INTEGER,
    renewed_by TEXT,
    lapsed_at INTEGER,
    open_waits INTEGER NOT NULL,
    next_retry_at INTEGER,
    due_at INTEGER,
    reason TEXT,
    owner TEXT,
    progress TEXT,
    updated_at INTEGER NOT NULL,
    children INTEGER NOT NULL,
    waiters INTEGER NOT NULL,
    body TEXT NOT NULL,

    UNIQUE (tenant, system, source_id, run_id, generation),
    CHECK (system <> 'scheduler' OR run_id <> ''),
    CHECK (state >= 0 AND state <= 16),
    CHECK (
        CASE
            WHEN state = 1 OR state = 9 THEN lease_fence IS NOT NULL AND lapsed_at IS NULL
            WHEN state = 0 OR state = 7 OR state = 8 THEN lease_fence IS NULL OR lapsed_at IS NOT NULL
            ELSE lease_fence IS NULL
        END
    ),
    CHECK (state <> 7 OR next_retry_at IS NOT NULL),
    -- Whatever does not progress says why.
    CHECK (state <= 1 OR state >= 11 OR reason IS NOT NULL),
    CHECK (open_waits = 0 OR (open_waits > 0 AND state >= 2 AND state <= 6))
) STRICT;

CREATE INDEX work_parent ON work (parent) WHERE parent IS NOT NULL;
CREATE INDEX work_correlation ON work (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id) WHERE workflow_id IS NOT NULL;

-- AUTOINCREMENT: a position is never given twice, so no cursor skips.
CREATE TABLE event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    work BLOB NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    from_state INTEGER,
    to_state INTEGER NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    step TEXT,
    fence INTEGER,
    data TEXT NOT NULL,
    message TEXT,
    payload TEXT,
    evidence TEXT,
    digest BLOB,
    salt BLOB,
    prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL,
    CHECK ((seq = 1) = (from_state IS NULL)),
    -- Generated from the core's table of moves; a test keeps it equal.
    CHECK (
        ((from_state IS NULL AND (to_state = 0 OR to_state = 6 OR to_state = 11 OR to_state = 12
            OR to_state = 13 OR to_state = 14 OR to_state = 15 OR to_state = 16))
        OR (from_state IS NOT NULL AND ((from_state = to_state AND from_state >= 0 AND from_state <= 16)
        OR (from_state = 0 AND (to_state = 1 OR to_state = 8 OR to_state = 10
            OR to_state = 14 OR to_state = 15))
        OR (from_state = 1 AND (to_state = 0 OR to_state = 2 OR to_state = 3 OR to_state = 4
            OR to_state = 5 OR to_state = 6 OR to_state = 7 OR to_state = 8 OR to_state = 9
            OR to_state = 10 OR to_state = 11 OR to_state = 12 OR to_state = 13
            OR to_state = 14 OR to_state = 16))
        OR (from_state = 2 AND (to_state = 0 OR to_state = 1 OR to_state = 3 OR to_state = 4
            OR to_state = 5 OR to_state = 6 OR to_state = 10 OR to_state = 12
            OR to_state = 13 OR to_state = 14 OR to_state = 15))
        OR (from_state = 3 AND (to_state = 0 OR to_state = 1 OR to_state = 2 OR to_state = 4
            OR to_state = 5 OR to_state = 6 OR to_state = 10 OR to_state = 12
            OR to_state = 13 OR to_state = 14 OR to_state = 15))
        OR (from_state = 4 AND (to_state = 0 OR to_state = 1 OR to_state = 2 OR to_state = 3
            OR to_state = 5 OR to_state = 6 OR to_state = 10 OR to_state = 12
            OR to_state = 13 OR to_state = 14 OR to_state = 15))
        OR (from_state = 5 AND (to_state = 0 OR to_state = 1 OR to_state = 2 OR to_state = 3
            OR to_state = 4 OR to_state = 6 OR to_state = 10 OR to_state = 12
            OR to_state = 13 OR to_state = 14 OR to_state = 15))
        OR (from_state = 6 AND (to_state = 0 OR to_state = 1 OR to_state = 2 OR to_state = 3
            OR to_state = 4 OR to_state = 5 OR to_state = 10 OR to_state = 11
            OR to_state = 12 OR to_state = 13 OR to_state = 14 OR to_state = 15 OR to_state = 16))
        OR (from_state = 7 AND (to_state = 0 OR to_state = 1 OR to_state = 10
            OR to_state = 14 OR to_state = 15))
        OR (from_state = 8 AND (to_state = 0 OR to_state = 1 OR to_state = 9 OR to_state = 10
            OR to_state = 13 OR to_state = 14 OR to_state = 15 OR to_state = 16))
        OR (from_state = 9 AND (to_state = 11 OR to_state = 12 OR to_state = 13
            OR to_state = 15 OR to_state = 16))
        OR (from_state = 10 AND (to_state = 0 OR to_state = 11 OR to_state = 13
            OR to_state = 15 OR to_state = 16)))))
    )
) STRICT;

-- One work's events. The state rides along, so that the triggers below need not visit the events.
-- That (work, seq) is unique follows: an event is only ever admitted right after the last one.
CREATE UNIQUE INDEX event_log ON event (work, seq, to_state);

CREATE TABLE attempt (
    work BLOB NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    request INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT,
    body_hash BLOB,
    ack TEXT,
    error TEXT,
    PRIMARY KEY (work, fence)
) STRICT, WITHOUT ROWID;

CREATE INDEX attempt_request ON attempt (request);

CREATE TABLE step (
    work BLOB NOT NULL,
    ordinal INTEGER NOT NULL,
    name TEXT NOT NULL,
    input_hash BLOB NOT NULL,
    begun_at INTEGER NOT NULL,
    completed_at INTEGER,
    result_work BLOB,
    result_seq INTEGER,
    voided INTEGER NOT NULL,
    PRIMARY KEY (work, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE wait (
    id BLOB NOT NULL PRIMARY KEY,
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    reference TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    deadline_at INTEGER,
    ended_at INTEGER,
    answer_seq INTEGER,
    detail TEXT NOT NULL,
    UNIQUE (work, reference)
) STRICT;

CREATE INDEX wait_reference ON wait (tenant, reference);

CREATE TABLE kept (
    tenant TEXT NOT NULL,
    reference TEXT NOT NULL,
    payload TEXT NOT NULL,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    kept_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, reference)
) STRICT, WITHOUT ROWID;

-- The narrow twin of every work: lists, timers and sessions read it, and only a move writes it.
CREATE TABLE status (
    work BLOB NOT NULL PRIMARY KEY,
    state INTEGER NOT NULL,
    due_at INTEGER,
    tenant TEXT NOT NULL,
    session TEXT,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX status_due ON status (due_at, work) WHERE due_at IS NOT NULL;
CREATE INDEX status_state ON status (state, work);

-- At most one work of a session is held.
CREATE UNIQUE INDEX status_holder ON status (tenant, session)
WHERE session IS NOT NULL AND (state = 1 OR state = 8 OR state = 9);

CREATE INDEX status_line ON status (tenant, session, created_at, work)
WHERE session IS NOT NULL AND (state = 0 OR state = 7);

-- Queues: one lane per source system and kind, and in it exactly the claimable works.
CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    system TEXT NOT NULL,
    kind TEXT NOT NULL,
    UNIQUE (system, kind)
) STRICT;

CREATE TABLE ready (
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    bound TEXT,
    PRIMARY KEY (lane, priority, created_at, work)
) STRICT, WITHOUT ROWID;

-- Events are appended, each to the one before it.
CREATE TRIGGER event_follows BEFORE INSERT ON event
WHEN NEW.seq * 32 + coalesce(NEW.from_state, 0) IS NOT coalesce(
    (SELECT (seq + 1) * 32 + to_state FROM event WHERE work = NEW.work ORDER BY seq DESC LIMIT 1), 32
)
BEGIN
    SELECT raise(ROLLBACK, 'an event must follow the last one of its work');
END;

-- Only an erasure edits an event: free text, payload, evidence and salt go, everything else stays.
CREATE TRIGGER event_stays BEFORE UPDATE ON event
WHEN NOT (
    NEW.position IS OLD.position AND NEW.work IS OLD.work AND NEW.seq IS OLD.seq AND NEW.at IS OLD.at
    AND NEW.type IS OLD.type AND NEW.from_state IS OLD.from_state AND NEW.to_state IS OLD.to_state
    AND NEW.actor_type IS OLD.actor_type AND NEW.actor_id IS OLD.actor_id
    AND NEW.attempt IS OLD.attempt AND NEW.step IS OLD.step AND NEW.fence IS OLD.fence
    AND NEW.data IS OLD.data AND NEW.digest IS OLD.digest AND NEW.prev_hash IS OLD.prev_hash
    AND NEW.hash IS OLD.hash
    AND NEW.message IS NULL AND NEW.payload IS NULL AND NEW.evidence IS NULL AND NEW.salt IS NULL
)
BEGIN
    SELECT raise(ROLLBACK, 'events are never changed');
END;

CREATE TRIGGER event_kept BEFORE DELETE ON event
BEGIN
    SELECT raise(ROLLBACK, 'events are never deleted');
END;

-- A row is saved after its events and stands where the last of them left it. With the table of moves
-- above, that also keeps ends final.
CREATE TRIGGER work_born AFTER INSERT ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE work = NEW.id ORDER BY seq DESC LIMIT 1
)
BEGIN
    SELECT raise(ROLLBACK, 'a work must stand where its last event left it');
END;

CREATE TRIGGER work_moved AFTER UPDATE OF state, seq, head ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE work = NEW.id ORDER BY seq DESC LIMIT 1
)
BEGIN
    SELECT raise(ROLLBACK, 'a work must stand where its last event left it');
END;

CREATE TRIGGER work_stays BEFORE UPDATE OF
    id, tenant, system, source_id, run_id, generation, kind, session, parent, correlation_id,
    workflow_id, priority, created_at ON work
BEGIN
    SELECT raise(ROLLBACK, 'what a work was ingested as never changes');
END;

CREATE TRIGGER work_kept BEFORE DELETE ON work
BEGIN
    SELECT raise(ROLLBACK, 'works are never deleted');
END;
