-- What was pruned. A tombstone keeps an identity from ever being run again; a link keeps the place and the
-- hash of an event in the feed, so that anchors made before still hold.
--
-- A tombstone is set first. The work is deleted when every transaction below the barrier is over: one that
-- began before the tombstone could be seen would otherwise find the identity free.
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
    CONSTRAINT tombstone_identity UNIQUE (tenant, system, source_id, run_id, generation)
);

CREATE INDEX tombstone_pending ON tombstone (work) WHERE NOT gone;

CREATE TABLE link (
    epoch integer NOT NULL,
    txn bigint NOT NULL,
    number bigint NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (epoch, txn, number)
);

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

CREATE FUNCTION work_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM removed r
        WHERE r.state < 11 OR NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = r.id))
    THEN
        RAISE EXCEPTION 'works are never deleted' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER event_kept ON event;
CREATE TRIGGER event_kept AFTER DELETE ON event REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION event_pruned();
DROP TRIGGER work_kept ON work;
CREATE TRIGGER work_kept AFTER DELETE ON work REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION work_pruned();

-- Before the work is gone, a tombstone may still be taken back.
CREATE TRIGGER tombstone_stays BEFORE UPDATE OR DELETE ON tombstone
    FOR EACH ROW WHEN (OLD.gone) EXECUTE FUNCTION refuse('tombstones stay');
CREATE TRIGGER tombstone_never_emptied BEFORE TRUNCATE ON tombstone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('tombstones stay');
