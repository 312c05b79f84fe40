-- Credentials belong to principals: persons and machines, known by an id. Their names are labels, and events keep the
-- label of their time beside the id.

ALTER TABLE event ADD COLUMN actor_name TEXT;

DROP TRIGGER event_stays;
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

ALTER TABLE credential RENAME TO credential_before;
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
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL) AND (revoked_at IS NULL) = (revoked_reason IS NULL))
) STRICT;

-- Until now a name was an identity: those of one name and kind are one principal.
INSERT INTO credential SELECT
    c.id, c.name,
    (SELECT min(o.id) FROM credential_before o WHERE o.name = c.name AND o.kind = c.kind),
    c.name, c.kind, c.hash, c.scopes, c.tenants, NULL, NULL, c.created_at,
    json_object('type', 'system', 'id', c.created_by), c.expires_at, c.revoked_at,
    CASE WHEN c.revoked_at IS NOT NULL THEN json_object('type', 'system', 'id', 'unknown') END,
    CASE WHEN c.revoked_at IS NOT NULL THEN 'not recorded' END
FROM credential_before c;
DROP TABLE credential_before;

CREATE INDEX credential_principal ON credential (principal, id);

-- Who pruned, and why. What was pruned has the same moment in its tombstone.
CREATE TABLE pruning (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    ended_before INTEGER NOT NULL,
    works INTEGER NOT NULL
) STRICT;

CREATE TRIGGER pruning_stays BEFORE UPDATE ON pruning
BEGIN
    SELECT raise(ROLLBACK, 'records of pruning stay');
END;

CREATE TRIGGER pruning_kept BEFORE DELETE ON pruning
BEGIN
    SELECT raise(ROLLBACK, 'records of pruning stay');
END;
