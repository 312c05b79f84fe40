-- A work's log is a linked list: each event names the one before it, the work's row names the last. An index of all logs had
-- to take one entry of each event, somewhere in its middle, and was most of what a commit wrote. Now only every 64th event
-- of a work has one, the first among them: whoever wants an event from the middle starts at the next of these.
--
-- And no check calls a function: one that could fail makes SQLite keep a journal of its own for every insert.

DROP TRIGGER event_follows;
DROP TRIGGER event_stays;
ALTER TABLE event ADD COLUMN previous INTEGER; -- where the event before it lies
UPDATE event SET previous = (SELECT p.position FROM event p WHERE p.work = event.work AND p.seq = event.seq - 1)
WHERE seq > 1;

ALTER TABLE work RENAME TO work_before;
ALTER TABLE command RENAME TO command_before;

-- What never changes comes first; what events change follows. The whole of what a work was ingested as
-- is the data of its first event: a row that every event rewrites is kept small.
CREATE TABLE work (
    id BLOB NOT NULL UNIQUE,
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
    last_event INTEGER NOT NULL, -- where it lies
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

-- What never changes comes first; the rest is the fold of the command's events.
CREATE TABLE command (
    id BLOB NOT NULL PRIMARY KEY,
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    tool TEXT NOT NULL,
    target TEXT NOT NULL,
    kind TEXT NOT NULL,
    executor TEXT NOT NULL CHECK (executor = 'worker' OR executor = 'http' OR executor = 'exec'),
    key BLOB NOT NULL,
    input_hash BLOB NOT NULL,
    step TEXT,
    slot TEXT,
    created_at INTEGER NOT NULL,

    state INTEGER NOT NULL CHECK (state >= 0 AND state <= 7),
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL, -- where it lies
    updated_at INTEGER NOT NULL,
    duty INTEGER, -- whose turn it is when it is due
    due_at INTEGER,
    line INTEGER, -- of ordered ones: their tool and target
    dispatches INTEGER NOT NULL CHECK (dispatches >= 0),
    superseded INTEGER NOT NULL,
    blocked TEXT,
    needs_person INTEGER NOT NULL,
    body TEXT NOT NULL,
    CHECK ((duty IS NULL) = (due_at IS NULL)),
    CHECK ((state = 1) = (blocked IS NOT NULL)),
    CHECK (superseded = 0 OR (superseded = 1 AND state = 7)),
    CHECK (needs_person = 0 OR state = 4),
    CHECK (dispatches > 0 OR (state <> 3 AND state <> 4 AND state <> 6))
) STRICT;

INSERT INTO work (
    rowid, id, tenant, system, source_id, run_id, generation, kind, session, parent, correlation_id, workflow_id, priority,
    created_at, state, seq, last_event, head, attempt, fence, lease_fence, expires_at, renewed_at, renewed_by, lapsed_at,
    open_waits, next_retry_at, due_at, reason, owner, progress, updated_at, children, waiters, body
)
SELECT
    w.rowid, w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, w.kind, w.session, w.parent, w.correlation_id,
    w.workflow_id, w.priority, w.created_at, w.state, w.seq, coalesce(e.position, 0), w.head, w.attempt, w.fence, w.lease_fence,
    w.expires_at, w.renewed_at, w.renewed_by, w.lapsed_at, w.open_waits, w.next_retry_at, w.due_at, w.reason, w.owner,
    w.progress, w.updated_at, w.children, w.waiters, w.body
FROM work_before w LEFT JOIN event e ON e.work = w.id AND e.seq = w.seq
ORDER BY w.rowid;

INSERT INTO command (
    rowid, id, work, tenant, tool, target, kind, executor, key, input_hash, step, slot, created_at, state, seq, last_event,
    updated_at, duty, due_at, line, dispatches, superseded, blocked, needs_person, body
)
SELECT
    c.rowid, c.id, c.work, c.tenant, c.tool, c.target, c.kind, c.executor, c.key, c.input_hash, c.step, c.slot, c.created_at,
    c.state, c.seq, coalesce(e.position, 0), c.updated_at, c.duty, c.due_at, c.line, c.dispatches, c.superseded, c.blocked,
    c.needs_person, c.body
FROM command_before c LEFT JOIN event e ON e.work = c.work AND e.seq = c.seq
ORDER BY c.rowid;

DROP TABLE work_before;
DROP TABLE command_before;

CREATE INDEX work_parent ON work (parent) WHERE parent IS NOT NULL;
CREATE INDEX work_correlation ON work (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id) WHERE workflow_id IS NOT NULL;

-- One intent is one command, but for those that a later attempt superseded before anybody sent them.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE superseded = 0;
CREATE INDEX command_superseded ON command (work) WHERE superseded = 1;

-- Most have succeeded: those are found by their ids alone. And what a worker is about to do, or is doing, is soon over: it
-- is found among the open ones, and never comes in here.
CREATE INDEX command_state ON command (state, id, executor)
WHERE state <> 5 AND (executor <> 'worker' OR (state <> 0 AND state <> 3));
CREATE INDEX command_open ON command (work, executor) WHERE state <= 4;
CREATE INDEX command_due ON command (duty, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX command_line ON command (line, id) WHERE line IS NOT NULL AND state <= 4;

DROP INDEX event_log;
CREATE UNIQUE INDEX event_mark ON event (work, seq) WHERE seq % 64 = 1;

-- No two events follow the same one. With the mark of the first, that makes each log one line.
CREATE UNIQUE INDEX event_next ON event (previous) WHERE previous IS NOT NULL;

-- Events are appended, each to the last one of its work. That it is the last, and that its place is free, is asked here as well:
-- an INSERT OR REPLACE would delete whatever an index has in its way, and no trigger sees it.
CREATE TRIGGER event_follows BEFORE INSERT ON event
WHEN NEW.seq * 32 + coalesce(NEW.from_state, 0) IS NOT CASE
    WHEN NEW.previous IS NULL THEN 32
    ELSE (SELECT (seq + 1) * 32 + to_state FROM event WHERE position = NEW.previous AND work = NEW.work)
END
    OR CASE
        WHEN NEW.previous IS NULL
            THEN EXISTS (SELECT 1 FROM event WHERE work = NEW.work AND seq = 1 AND seq % 64 = 1)
        ELSE EXISTS (SELECT 1 FROM event WHERE previous = NEW.previous)
    END
    OR (NEW.position >= 0 AND EXISTS (SELECT 1 FROM event WHERE position = NEW.position))
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
    AND NEW.hash IS OLD.hash AND NEW.previous IS OLD.previous
    AND NEW.message IS NULL AND NEW.payload IS NULL AND NEW.evidence IS NULL AND NEW.salt IS NULL
)
BEGIN
    SELECT raise(ROLLBACK, 'events are never changed');
END;

-- A row is saved after its events and stands where the last of them left it. With the table of moves, that also keeps ends
-- final.
CREATE TRIGGER work_born AFTER INSERT ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE position = NEW.last_event AND work = NEW.id
)
    OR EXISTS (SELECT 1 FROM event WHERE previous = NEW.last_event)
BEGIN
    SELECT raise(ROLLBACK, 'a work must stand where its last event left it');
END;

CREATE TRIGGER work_moved AFTER UPDATE OF state, seq, head, last_event ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE position = NEW.last_event AND work = NEW.id
)
    OR EXISTS (SELECT 1 FROM event WHERE previous = NEW.last_event)
BEGIN
    SELECT raise(ROLLBACK, 'a work must stand where its last event left it');
END;

-- A command is saved after its events: the last of them must be one of a command. A span of names, since a function would
-- make a new text of each.
CREATE TRIGGER command_born AFTER INSERT ON command
WHEN NOT EXISTS (
    SELECT 1 FROM event WHERE position = NEW.last_event AND work = NEW.work AND seq = NEW.seq
    AND type >= 'command_' AND type < 'command`'
)
BEGIN
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

-- What happened, and what never will, stays; the rest moves by events.
CREATE TRIGGER command_moved AFTER UPDATE OF state, seq, last_event ON command
WHEN NEW.seq < OLD.seq
    OR (NEW.state <> OLD.state AND (NEW.seq = OLD.seq OR OLD.state = 5 OR OLD.state = 7))
    OR NOT EXISTS (
        SELECT 1 FROM event WHERE position = NEW.last_event AND work = NEW.work AND seq = NEW.seq
        AND type >= 'command_' AND type < 'command`'
    )
BEGIN
    SELECT raise(ROLLBACK, 'what happened, and what never will, stays so')
    WHERE NEW.state <> OLD.state AND (OLD.state = 5 OR OLD.state = 7);
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

CREATE TRIGGER work_stays BEFORE UPDATE OF
    id, tenant, system, source_id, run_id, generation, kind, session, parent, correlation_id,
    workflow_id, priority, created_at ON work
BEGIN
    SELECT raise(ROLLBACK, 'what a work was ingested as never changes');
END;

CREATE TRIGGER work_kept BEFORE DELETE ON work
WHEN OLD.state < 11 OR NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.id)
BEGIN
    SELECT raise(ROLLBACK, 'works are never deleted');
END;

CREATE TRIGGER command_stays BEFORE UPDATE OF
    id, work, tenant, tool, target, kind, executor, key, input_hash, step, slot, created_at ON command
BEGIN
    SELECT raise(ROLLBACK, 'an intent never changes');
END;

CREATE TRIGGER command_kept BEFORE DELETE ON command
WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.work)
BEGIN
    SELECT raise(ROLLBACK, 'commands are never deleted');
END;
