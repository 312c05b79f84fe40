-- The event of a claim says all that an attempt begins with. It is found by its request, so nothing else is written for it:
-- what is left of the table are the ends, each written once.

-- Both at once: whoever still writes to them as before is waited for now, and not after all the work.
LOCK TABLE attempt, event IN ACCESS EXCLUSIVE MODE;

-- The index comes first: one that is made over rows just changed is of no use as long as an older transaction runs.
ALTER TABLE event ADD COLUMN request bigint;
CREATE INDEX event_request ON event (request) WHERE request IS NOT NULL;
UPDATE event e SET request = a.request FROM attempt a
    WHERE e.work = a.work AND e.fence = a.fence AND e.type = 'claimed';

DROP TRIGGER event_unchanged ON event;
CREATE TRIGGER event_unchanged BEFORE UPDATE ON event
    FOR EACH ROW WHEN (
        (OLD.epoch, OLD.txn, OLD.number, OLD.work, OLD.seq, OLD.at, OLD.type, OLD.from_state, OLD.to_state, OLD.request,
         OLD.actor_type, OLD.actor_id, OLD.attempt, OLD.step, OLD.fence, OLD.data, OLD.digest, OLD.prev_hash, OLD.hash)
        IS DISTINCT FROM
        (NEW.epoch, NEW.txn, NEW.number, NEW.work, NEW.seq, NEW.at, NEW.type, NEW.from_state, NEW.to_state, NEW.request,
         NEW.actor_type, NEW.actor_id, NEW.attempt, NEW.step, NEW.fence, NEW.data, NEW.digest, NEW.prev_hash, NEW.hash)
        OR NEW.message IS NOT NULL AND NEW.message IS DISTINCT FROM OLD.message
        OR NEW.payload IS NOT NULL AND NEW.payload IS DISTINCT FROM OLD.payload
        OR NEW.evidence IS NOT NULL AND NEW.evidence IS DISTINCT FROM OLD.evidence
        OR NEW.salt IS NOT NULL AND NEW.salt IS DISTINCT FROM OLD.salt
    )
    EXECUTE FUNCTION refuse('an event changes only by erasure');

CREATE TABLE attempt_end (
    work uuid NOT NULL,
    fence bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome text NOT NULL,
    body_hash bytea,
    ack text,
    error text,
    usage text,
    PRIMARY KEY (work, fence)
);
INSERT INTO attempt_end SELECT work, fence, ended_at, outcome, body_hash, ack, error, usage
    FROM attempt WHERE ended_at IS NOT NULL ORDER BY work, fence;
DROP TABLE attempt;
