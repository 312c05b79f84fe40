-- What was pruned. A tombstone keeps an identity from ever being run again; a link keeps the place and the
-- hash of an event in the feed, so that anchors made before still hold.

CREATE TABLE tombstone (
    work BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    system TEXT NOT NULL,
    source_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    pruned_at INTEGER NOT NULL,
    UNIQUE (tenant, system, source_id, run_id, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE link (
    position INTEGER PRIMARY KEY,
    hash BLOB NOT NULL
) STRICT;

DROP TRIGGER event_kept;
CREATE TRIGGER event_kept BEFORE DELETE ON event
WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.work)
    OR NOT EXISTS (SELECT 1 FROM link WHERE position = OLD.position AND hash = OLD.hash)
BEGIN
    SELECT raise(ROLLBACK, 'events are never deleted');
END;

DROP TRIGGER work_kept;
CREATE TRIGGER work_kept BEFORE DELETE ON work
WHEN OLD.state < 11 OR NOT EXISTS (SELECT 1 FROM tombstone WHERE work = OLD.id)
BEGIN
    SELECT raise(ROLLBACK, 'works are never deleted');
END;

CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone
BEGIN
    SELECT raise(ROLLBACK, 'tombstones stay');
END;

CREATE TRIGGER tombstone_kept BEFORE DELETE ON tombstone
BEGIN
    SELECT raise(ROLLBACK, 'tombstones stay');
END;
