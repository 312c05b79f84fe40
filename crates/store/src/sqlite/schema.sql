-- The tables of a ledger in SQLite. postgres/schema.sql has the same model in the same order.
--
-- Ids are 16-byte UUIDs, times are Unix milliseconds, states are numbers. Columns that never
-- change come first, columns that events change follow.
--
-- Triggers raise ROLLBACK, as the ledger's statements do: for a trigger that raises ABORT, SQLite keeps a statement journal.
-- For the same reason no CHECK and no trigger of a table that every event writes calls a function that can fail. Conditions
-- are chains of OR: SQLite builds a table for an IN list.

-- The ledger's key, its anchor and its settings.
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Work items. The data of the first event contains everything that an item was ingested as; this row is written anew by every
-- event, so it is kept small.
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
    correlation_id TEXT, -- NULL where it is the item's own id
    workflow_id TEXT,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,

    state INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL, -- its position
    head BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    lease_fence INTEGER,
    expires_at INTEGER,
    renewed_at INTEGER,
    renewed_by TEXT,
    progressed_at INTEGER,
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
    CHECK ({state is known}),
    CHECK (
        CASE
            WHEN {state is leased} THEN lease_fence IS NOT NULL AND lapsed_at IS NULL
            WHEN {state is resumable} THEN lease_fence IS NULL OR lapsed_at IS NOT NULL
            ELSE lease_fence IS NULL
        END
    ),
    CHECK ({state is not retry_scheduled} OR next_retry_at IS NOT NULL),
    -- An item that does not progress says why.
    CHECK (NOT {state is halted} OR reason IS NOT NULL),
    CHECK (open_waits = 0 OR (open_waits > 0 AND {state is waiting}))
) STRICT;

CREATE INDEX work_parent ON work (parent) WHERE parent IS NOT NULL;

-- Every tenant may use any correlation or workflow id: a query of one tenant reads only its own items.
CREATE INDEX work_correlation ON work (correlation_id, tenant, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id, tenant, id) WHERE workflow_id IS NOT NULL;

-- A row is saved after its events and agrees with the last of them. With the table of moves, this also keeps terminal states
-- final.
CREATE TRIGGER work_born AFTER INSERT ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE position = NEW.last_event AND work = NEW.id
)
    OR EXISTS (SELECT 1 FROM event WHERE previous = NEW.last_event)
BEGIN
    SELECT raise(ROLLBACK, 'a work item must match its last event');
END;

CREATE TRIGGER work_moved AFTER UPDATE OF state, seq, head, last_event ON work
WHEN (NEW.seq, NEW.state, NEW.head) IS NOT (
    SELECT seq, to_state, hash FROM event WHERE position = NEW.last_event AND work = NEW.id
)
    OR EXISTS (SELECT 1 FROM event WHERE previous = NEW.last_event)
BEGIN
    SELECT raise(ROLLBACK, 'a work item must match its last event');
END;

CREATE TRIGGER work_stays BEFORE UPDATE OF
    id, tenant, system, source_id, run_id, generation, kind, session, parent, correlation_id,
    workflow_id, priority, created_at ON work
BEGIN
    SELECT raise(ROLLBACK, 'the specification of a work item never changes');
END;

CREATE TRIGGER work_kept BEFORE DELETE ON work
WHEN {OLD.state is open} OR NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.id)
BEGIN
    SELECT raise(ROLLBACK, 'works are never deleted');
END;

-- The log. AUTOINCREMENT: a position is never used twice, so no cursor skips an event.
--
-- The log of one item is a linked list: each event names the position of the one before it, the item's row names the last.
-- An index of all logs would take one entry of each event, somewhere in its middle, and be most of what a commit writes.
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
    previous INTEGER, -- the position of the event before it
    actor_name TEXT, -- the principal's label at that time
    CHECK ((seq = 1) = (from_state IS NULL)),
    CHECK (@moves)
) STRICT;

-- An entry for every 64th event of an item, the first among them: a reader of an event in the middle starts at the next of
-- these.
CREATE UNIQUE INDEX event_mark ON event (work, seq) WHERE seq % 64 = 1;

-- No two events follow the same one. With the mark of the first event, this makes each log one line.
CREATE UNIQUE INDEX event_next ON event (previous) WHERE previous IS NOT NULL;

-- Events are appended, each to the last one of its item. The trigger also checks that the event before it is the last one and
-- that its own position is free: INSERT OR REPLACE would delete the row that an index has in its way, and fire no trigger.
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
    SELECT raise(ROLLBACK, 'an event must follow the last one of its work item');
END;

-- Only an erasure edits an event: free text, payload, evidence and salt go, everything else stays.
CREATE TRIGGER event_stays BEFORE UPDATE ON event
WHEN NOT (
    NEW.position IS OLD.position AND NEW.work IS OLD.work AND NEW.seq IS OLD.seq AND NEW.at IS OLD.at
    AND NEW.type IS OLD.type AND NEW.from_state IS OLD.from_state AND NEW.to_state IS OLD.to_state
    AND NEW.actor_type IS OLD.actor_type AND NEW.actor_id IS OLD.actor_id AND NEW.actor_name IS OLD.actor_name
    AND NEW.attempt IS OLD.attempt AND NEW.step IS OLD.step AND NEW.fence IS OLD.fence
    AND NEW.data IS OLD.data AND NEW.digest IS OLD.digest AND NEW.prev_hash IS OLD.prev_hash
    AND NEW.hash IS OLD.hash AND NEW.previous IS OLD.previous
    AND NEW.message IS NULL AND NEW.payload IS NULL AND NEW.evidence IS NULL AND NEW.salt IS NULL
)
BEGIN
    SELECT raise(ROLLBACK, 'events are never changed');
END;

-- Pruning deletes events; their places and hashes stay as links.
CREATE TRIGGER event_kept BEFORE DELETE ON event
WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.work)
    OR NOT EXISTS (SELECT 1 FROM link WHERE position = OLD.position AND hash = OLD.hash)
BEGIN
    SELECT raise(ROLLBACK, 'events are never deleted');
END;

-- Attempts, from the claim on. The end of an attempt is written over its row.
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
    usage TEXT, -- a JSON list, as the request that ended the attempt said it
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

-- The open waits in the order of their lists, those of one tenant, and by kind with their deadlines.
CREATE INDEX wait_open ON wait (opened_at, id) WHERE state = 'open';
CREATE INDEX wait_tenant ON wait (tenant, opened_at, id) WHERE state = 'open';
CREATE INDEX wait_kind ON wait (kind, deadline_at) WHERE state = 'open';

-- Answers that came before their waits.
CREATE TABLE kept (
    tenant TEXT NOT NULL,
    reference TEXT NOT NULL,
    payload TEXT NOT NULL,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    kept_at INTEGER NOT NULL,
    mac BLOB, -- under the ledger's key, as in every table whose rows no event accounts for
    PRIMARY KEY (tenant, reference)
) STRICT, WITHOUT ROWID;

-- A narrow copy of every work item: lists, timers and sessions read it, and only a move writes it.
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

-- A list of one tenant reads no row of another.
CREATE INDEX status_tenant ON status (tenant, state, work);

-- At most one item of a session is held.
CREATE UNIQUE INDEX status_holder ON status (tenant, session)
WHERE session IS NOT NULL AND {state is held};

-- The queue of a session.
CREATE INDEX status_line ON status (tenant, session, created_at, work)
WHERE session IS NOT NULL AND {state is pending};

-- Exactly the claimable items. A queue is one tenant, kind and source system: a claim reads the queues of its own tenants
-- only.
CREATE TABLE ready (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    system TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    work BLOB NOT NULL,
    bound TEXT,
    PRIMARY KEY (tenant, kind, system, priority, created_at, work)
) STRICT, WITHOUT ROWID;

-- Commands: recorded side effects. One row each, with no narrow copy as in PostgreSQL: SQLite writes the row anew with each
-- event, with any index or none.
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

    state INTEGER NOT NULL CHECK ({command state is known}),
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL, -- its position
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
    CHECK (({command state is blocked}) = (blocked IS NOT NULL)),
    CHECK (superseded = 0 OR (superseded = 1 AND {command state is cancelled})),
    CHECK (needs_person = 0 OR {command state is uncertain}),
    CHECK (dispatches > 0 OR NOT {command state is sent})
) STRICT;

-- One intent is one command, except for those that a later attempt superseded before they were sent.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE superseded = 0;
CREATE INDEX command_superseded ON command (work) WHERE superseded = 1;

-- Most commands have succeeded: they are found by their ids alone. A command that a worker is about to do, or is doing, is soon
-- over: it is found among the open ones and never gets an entry here.
CREATE INDEX command_state ON command (state, id, executor)
WHERE {command state is not succeeded} AND (executor <> 'worker' OR NOT {command state is brief});
CREATE INDEX command_open ON command (work, executor) WHERE {command state is open};
CREATE INDEX command_due ON command (duty, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX command_line ON command (line, id) WHERE line IS NOT NULL AND {command state is open};
CREATE INDEX command_tenant ON command (tenant, id);

-- Lookups that are due, for the workers of a tenant that make them.
CREATE INDEX command_lookup ON command (tenant, due_at, id) WHERE duty = 2 AND due_at IS NOT NULL;

-- A command is saved after its events: the last of them is an event of a command. A range of names, because a function would
-- make a new string of each.
CREATE TRIGGER command_born AFTER INSERT ON command
WHEN NOT EXISTS (
    SELECT 1 FROM event WHERE position = NEW.last_event AND work = NEW.work AND seq = NEW.seq
    AND type >= 'command_' AND type < 'command`'
)
BEGIN
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

-- A cancelled command that was sent before takes a receipt that comes late: it happened. Otherwise succeeded and cancelled
-- commands stay so; the others move by events.
CREATE TRIGGER command_moved AFTER UPDATE OF state, seq, last_event ON command
WHEN NEW.seq < OLD.seq
    OR (NEW.state <> OLD.state AND (NEW.seq = OLD.seq OR {command OLD.state is succeeded} OR ({command OLD.state is cancelled} AND {command NEW.state is not succeeded})))
    OR NOT EXISTS (
        SELECT 1 FROM event WHERE position = NEW.last_event AND work = NEW.work AND seq = NEW.seq
        AND type >= 'command_' AND type < 'command`'
    )
BEGIN
    SELECT raise(ROLLBACK, 'a command that succeeded or was cancelled is final')
    WHERE NEW.state <> OLD.state AND ({command OLD.state is succeeded} OR ({command OLD.state is cancelled} AND {command NEW.state is not succeeded}));
    SELECT raise(ROLLBACK, 'a command moves only by events');
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

CREATE TABLE budget (
    key TEXT NOT NULL PRIMARY KEY,
    spent INTEGER NOT NULL CHECK (spent >= 0),
    reserved INTEGER NOT NULL CHECK (reserved >= 0)
) STRICT, WITHOUT ROWID;

-- Schedules are not part of the event-sourced state; a run of one makes a work item like any other. The body is the core's
-- record, the other columns are what it is found by.
CREATE TABLE schedule (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due_at INTEGER, -- when the scheduler must look at it; NULL: never
    body TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (due_at) WHERE due_at IS NOT NULL;

-- The changes of schedules, with actor and reason. They outlive their schedules.
CREATE TABLE schedule_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    act TEXT NOT NULL,
    reason TEXT NOT NULL,
    plan TEXT -- what it was set to
) STRICT;

CREATE INDEX schedule_change_of ON schedule_change (tenant, name, number);

CREATE TRIGGER schedule_change_stays BEFORE UPDATE ON schedule_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of schedules stay');
END;

CREATE TRIGGER schedule_change_kept BEFORE DELETE ON schedule_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of schedules stay');
END;

-- The pauses of the intake, with actor and reason. The last row of a tenant is the current one. Not part of the event-sourced
-- state.
CREATE TABLE intake_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL, -- empty: every tenant
    paused INTEGER NOT NULL CHECK (paused = 0 OR paused = 1),
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX intake_change_of ON intake_change (tenant, number);

CREATE TRIGGER intake_change_stays BEFORE UPDATE ON intake_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of the intake stay');
END;

CREATE TRIGGER intake_change_kept BEFORE DELETE ON intake_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of the intake stay');
END;

-- Credentials and their principals, persons and machines: not part of the event-sourced state. A principal is known by its id,
-- its name is a label. Access tokens are stored as SHA-256 only.
CREATE TABLE credential (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    principal BLOB NOT NULL CHECK (length(principal) = 16),
    principal_name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind = 'person' OR kind = 'machine'),
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    scopes TEXT NOT NULL,
    tenants TEXT, -- NULL: all
    kinds TEXT, -- NULL: all
    worker TEXT, -- NULL: any
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT,
    revoked_reason TEXT,
    mac BLOB,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL) AND (revoked_at IS NULL) = (revoked_reason IS NULL))
) STRICT;

CREATE INDEX credential_principal ON credential (principal, id);

-- A tombstone keeps the identity of a pruned item from ever being used again.
CREATE TABLE tombstone (
    work BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    system TEXT NOT NULL,
    source_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    pruned_at INTEGER NOT NULL,
    mac BLOB,
    UNIQUE (tenant, system, source_id, run_id, generation)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone WHEN OLD.mac IS NOT NULL
BEGIN
    SELECT raise(ROLLBACK, 'tombstones stay');
END;

CREATE TRIGGER tombstone_kept BEFORE DELETE ON tombstone
BEGIN
    SELECT raise(ROLLBACK, 'tombstones stay');
END;

-- A link keeps the position and the hash of a pruned event, so that anchors made before still agree with the feed.
CREATE TABLE link (
    position INTEGER PRIMARY KEY,
    hash BLOB NOT NULL,
    work BLOB,
    mac BLOB
) STRICT;

-- The record of each pruning, with actor and reason. The tombstones of a pruning have the same time.
CREATE TABLE pruning (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    ended_before INTEGER NOT NULL,
    works INTEGER NOT NULL,
    mac BLOB
) STRICT;

CREATE TRIGGER pruning_stays BEFORE UPDATE ON pruning WHEN OLD.mac IS NOT NULL
BEGIN
    SELECT raise(ROLLBACK, 'records of pruning stay');
END;

CREATE TRIGGER pruning_kept BEFORE DELETE ON pruning
BEGIN
    SELECT raise(ROLLBACK, 'records of pruning stay');
END;

-- Rows that applications insert in their own transactions: each committed one becomes a work item, and is deleted. One program
-- writes at a time, so the order of the ids is the order of the commits.
CREATE TABLE tenure_intake (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    tenant TEXT NOT NULL DEFAULT 'default',
    source_system TEXT NOT NULL,
    source_id TEXT NOT NULL,
    source_run_id TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL,
    disposition TEXT NOT NULL,
    input TEXT NOT NULL DEFAULT 'null', -- JSON
    priority INTEGER NOT NULL DEFAULT 3,
    session TEXT,
    correlation_id TEXT,
    options TEXT, -- a JSON object
    rejected_at INTEGER,
    reason TEXT,
    CHECK ((rejected_at IS NULL) = (reason IS NULL))
) STRICT;

CREATE INDEX tenure_intake_waiting ON tenure_intake (id) WHERE rejected_at IS NULL;
CREATE INDEX tenure_intake_set_aside ON tenure_intake (rejected_at, id) WHERE rejected_at IS NOT NULL;
