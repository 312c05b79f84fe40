-- A command is one row. PostgreSQL has a narrow twin beside it so that the wide row stays HOT; SQLite rewrites the row with
-- each event whatever is indexed, so here the twin was a second row to write. And each part of what was reserved is in one
-- column, not in a JSON text besides: what every event rewrites is kept small.

ALTER TABLE command RENAME TO command_and_twin;

-- What never changes comes first; the rest is the fold of the command's events.
CREATE TABLE command (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    tool TEXT NOT NULL,
    target TEXT NOT NULL,
    kind TEXT NOT NULL,
    executor TEXT NOT NULL CHECK (executor = 'worker' OR executor = 'http' OR executor = 'exec'),
    key BLOB NOT NULL CHECK (length(key) = 32),
    input_hash BLOB NOT NULL CHECK (length(input_hash) = 32),
    step TEXT,
    slot TEXT,
    created_at INTEGER NOT NULL,

    state INTEGER NOT NULL CHECK (state >= 0 AND state <= 7),
    seq INTEGER NOT NULL,
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

INSERT INTO command (
    id, work, tenant, tool, target, kind, executor, key, input_hash, step, slot, created_at, state, seq, updated_at,
    duty, due_at, line, dispatches, superseded, blocked, needs_person, body
)
SELECT
    c.id, c.work, c.tenant, c.tool, c.target, json_extract(c.spec, '$.kind'), c.executor, c.key, c.input_hash,
    json_extract(c.spec, '$.step'), json_extract(c.spec, '$.slot'), c.created_at, c.state, c.seq, c.updated_at,
    s.duty, s.due_at, s.line, c.dispatches, c.superseded, c.blocked, c.needs_person, c.body
FROM command_and_twin c LEFT JOIN command_status s ON s.command = c.id
ORDER BY c.id;

DROP TABLE command_and_twin;
DROP TABLE command_status;

-- One intent is one command, but for those that a later attempt superseded before anybody sent them.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE superseded = 0;
CREATE INDEX command_superseded ON command (work) WHERE superseded = 1;

-- Most have succeeded: those are found by their ids alone, and leave this index for good.
CREATE INDEX command_state ON command (state, id) WHERE state <> 5;
CREATE INDEX command_open ON command (work) WHERE state <= 4;
CREATE INDEX command_due ON command (duty, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX command_line ON command (line, id) WHERE line IS NOT NULL AND state <= 4;

-- A command is saved after its events: the last of them must be one of a command. A span of names, since a function would
-- make a new text of each.
CREATE TRIGGER command_born AFTER INSERT ON command
WHEN NOT EXISTS (
    SELECT 1 FROM event WHERE work = NEW.work AND seq = NEW.seq AND type >= 'command_' AND type < 'command`'
)
BEGIN
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

-- What happened, and what never will, stays; the rest moves by events.
CREATE TRIGGER command_moved AFTER UPDATE OF state, seq ON command
WHEN NEW.seq < OLD.seq
    OR (NEW.state <> OLD.state AND (NEW.seq = OLD.seq OR OLD.state = 5 OR OLD.state = 7))
    OR NOT EXISTS (
        SELECT 1 FROM event WHERE work = NEW.work AND seq = NEW.seq AND type >= 'command_' AND type < 'command`'
    )
BEGIN
    SELECT raise(ROLLBACK, 'what happened, and what never will, stays so')
    WHERE NEW.state <> OLD.state AND (OLD.state = 5 OR OLD.state = 7);
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
