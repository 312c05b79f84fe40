-- Credentials belong to principals: persons and machines, known by an id. Their names are labels, and events keep the
-- label of their time beside the id.

ALTER TABLE event ADD COLUMN actor_name text;

DROP TRIGGER event_unchanged ON event;
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

-- Until now a name was an identity: those of one name and kind are one principal.
ALTER TABLE credential
    ADD COLUMN principal uuid,
    ADD COLUMN principal_name text,
    ADD COLUMN kinds text, -- NULL: all
    ADD COLUMN worker text, -- NULL: any
    ADD COLUMN revoked_by text,
    ADD COLUMN revoked_reason text;
UPDATE credential c SET
    principal = (SELECT o.id FROM credential o WHERE o.name = c.name AND o.kind = c.kind ORDER BY o.id LIMIT 1),
    principal_name = c.name,
    created_by = json_build_object('type', 'system', 'id', c.created_by)::text,
    revoked_by = CASE WHEN c.revoked_at IS NOT NULL THEN '{"type":"system","id":"unknown"}' END,
    revoked_reason = CASE WHEN c.revoked_at IS NOT NULL THEN 'not recorded' END;
ALTER TABLE credential
    ALTER COLUMN principal SET NOT NULL,
    ALTER COLUMN principal_name SET NOT NULL,
    ADD CONSTRAINT credential_revoked CHECK (
        (revoked_at IS NULL) = (revoked_by IS NULL) AND (revoked_at IS NULL) = (revoked_reason IS NULL)
    );

CREATE INDEX credential_principal ON credential (principal, id);

-- Who pruned, and why. What was pruned has the same moment in its tombstone.
CREATE TABLE pruning (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    ended_before bigint NOT NULL,
    works bigint NOT NULL
);

CREATE TRIGGER pruning_stays BEFORE UPDATE OR DELETE ON pruning
    FOR EACH ROW EXECUTE FUNCTION refuse('records of pruning stay');
CREATE TRIGGER pruning_never_emptied BEFORE TRUNCATE ON pruning
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('records of pruning stay');
