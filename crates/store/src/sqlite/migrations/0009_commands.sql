-- Commands: intended side effects. What never changes comes first; the rest is the fold of their events.
CREATE TABLE command (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    tool TEXT NOT NULL,
    target TEXT NOT NULL,
    executor TEXT NOT NULL CHECK (executor = 'worker' OR executor = 'http' OR executor = 'exec'),
    key BLOB NOT NULL CHECK (length(key) = 32),
    input_hash BLOB NOT NULL CHECK (length(input_hash) = 32),
    created_at INTEGER NOT NULL,
    spec TEXT NOT NULL,

    state INTEGER NOT NULL CHECK (state >= 0 AND state <= 7),
    seq INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    due_at INTEGER,
    dispatches INTEGER NOT NULL CHECK (dispatches >= 0),
    superseded INTEGER NOT NULL,
    blocked TEXT,
    needs_person INTEGER NOT NULL,
    body TEXT NOT NULL,
    CHECK ((state = 1) = (blocked IS NOT NULL)),
    CHECK (superseded = 0 OR state = 7),
    CHECK (needs_person = 0 OR state = 4),
    CHECK (dispatches > 0 OR (state <> 3 AND state <> 4 AND state <> 6))
) STRICT;

-- One intent is one command, but for those that a later attempt superseded before anybody sent them.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE superseded = 0;

-- The narrow twin of every command: lists and timers read it.
CREATE TABLE command_status (
    command BLOB NOT NULL PRIMARY KEY,
    work BLOB NOT NULL,
    tenant TEXT NOT NULL,
    state INTEGER NOT NULL,
    duty INTEGER,
    due_at INTEGER,
    line INTEGER, -- of ordered ones: their tool and target
    CHECK ((duty IS NULL) = (due_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX command_state ON command_status (state, command);
CREATE INDEX command_due ON command_status (duty, due_at, command) WHERE due_at IS NOT NULL;
CREATE INDEX command_work ON command_status (work, state);
CREATE INDEX command_line ON command_status (line, command) WHERE line IS NOT NULL AND state <= 4;

CREATE TABLE budget (
    key TEXT NOT NULL PRIMARY KEY,
    spent INTEGER NOT NULL CHECK (spent >= 0),
    reserved INTEGER NOT NULL CHECK (reserved >= 0)
) STRICT, WITHOUT ROWID;

-- A command is saved after its events: the last of them must be one of a command.
CREATE TRIGGER command_born AFTER INSERT ON command
WHEN NOT EXISTS (SELECT 1 FROM event WHERE work = NEW.work AND seq = NEW.seq AND substr(type, 1, 8) = 'command_')
BEGIN
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

CREATE TRIGGER command_moved AFTER UPDATE OF state, seq ON command
WHEN NEW.seq < OLD.seq OR (NEW.seq = OLD.seq AND NEW.state <> OLD.state)
    OR NOT EXISTS (SELECT 1 FROM event WHERE work = NEW.work AND seq = NEW.seq AND substr(type, 1, 8) = 'command_')
BEGIN
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;

-- What happened, and what never will.
CREATE TRIGGER command_end_stays BEFORE UPDATE OF state ON command
WHEN (OLD.state = 5 OR OLD.state = 7) AND NEW.state <> OLD.state
BEGIN
    SELECT raise(ROLLBACK, 'what happened, and what never will, stays so');
END;

CREATE TRIGGER command_stays BEFORE UPDATE OF
    id, work, tenant, tool, target, executor, key, input_hash, created_at, spec ON command
BEGIN
    SELECT raise(ROLLBACK, 'an intent never changes');
END;

CREATE TRIGGER command_kept BEFORE DELETE ON command
WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.work)
BEGIN
    SELECT raise(ROLLBACK, 'commands are never deleted');
END;
