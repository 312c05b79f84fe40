-- Commands: intended side effects. What never changes comes first; the rest is the fold of their events.
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
    CONSTRAINT command_state CHECK (state >= 0 AND state <= 7),
    CONSTRAINT command_executor CHECK (executor = 'worker' OR executor = 'http' OR executor = 'exec'),
    CONSTRAINT command_hashes CHECK (length(key) = 32 AND length(input_hash) = 32),
    CONSTRAINT command_blocked CHECK ((state = 1) = (blocked IS NOT NULL)),
    CONSTRAINT command_superseded CHECK (NOT superseded OR state = 7),
    CONSTRAINT command_person CHECK (NOT needs_person OR state = 4),
    CONSTRAINT command_sent CHECK (dispatches > 0 OR dispatches = 0 AND state <> 3 AND state <> 4 AND state <> 6)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);

-- One intent is one command, but for those that a later attempt superseded before anybody sent them.
CREATE UNIQUE INDEX command_key ON command (work, key) WHERE NOT superseded;

-- The narrow twin of every command: lists and timers read it, and the wide row stays HOT.
CREATE TABLE command_status (
    command uuid PRIMARY KEY,
    work uuid NOT NULL,
    due_at bigint,
    line bigint, -- of ordered ones: their tool and target
    state smallint NOT NULL,
    duty smallint,
    tenant text NOT NULL,
    CONSTRAINT command_status_due CHECK ((duty IS NULL) = (due_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX command_status_state ON command_status (state, command);
CREATE INDEX command_due ON command_status (duty, due_at, command) WHERE due_at IS NOT NULL;
CREATE INDEX command_work ON command_status (work, state);
CREATE INDEX command_line ON command_status (line, command) WHERE line IS NOT NULL AND state <= 4;

CREATE TABLE budget (
    key text PRIMARY KEY,
    spent bigint NOT NULL,
    reserved bigint NOT NULL,
    CONSTRAINT budget_amounts CHECK (spent >= 0 AND reserved >= 0)
) WITH (fillfactor = 60);

-- A command is saved after its events: the last of them must be one of a command.
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
-- What happened, and what never will.
CREATE TRIGGER command_end_stays BEFORE UPDATE ON command
    FOR EACH ROW WHEN ((OLD.state = 5 OR OLD.state = 7) AND NEW.state <> OLD.state)
    EXECUTE FUNCTION refuse('what happened, and what never will, stays so');
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
