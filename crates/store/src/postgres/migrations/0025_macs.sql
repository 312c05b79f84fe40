-- Beside each row that no log tells of is a MAC under the ledger's key. Rows that are here already get theirs from the
-- migration itself, once; a row that has one stays as it is.

ALTER TABLE credential ADD COLUMN mac bytea;
ALTER TABLE kept ADD COLUMN mac bytea;
ALTER TABLE pruning ADD COLUMN mac bytea;
ALTER TABLE tombstone ADD COLUMN mac bytea;
ALTER TABLE link
    ADD COLUMN work uuid, -- NULL: pruned before this migration
    ADD COLUMN mac bytea;

DROP TRIGGER pruning_stays ON pruning;
CREATE TRIGGER pruning_stays BEFORE UPDATE ON pruning
    FOR EACH ROW WHEN (OLD.mac IS NOT NULL) EXECUTE FUNCTION refuse('records of pruning stay');
CREATE TRIGGER pruning_kept BEFORE DELETE ON pruning
    FOR EACH ROW EXECUTE FUNCTION refuse('records of pruning stay');

-- Before the work is gone, a tombstone may still be taken back.
DROP TRIGGER tombstone_stays ON tombstone;
CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone
    FOR EACH ROW WHEN (OLD.gone AND OLD.mac IS NOT NULL) EXECUTE FUNCTION refuse('tombstones stay');
CREATE TRIGGER tombstone_kept BEFORE DELETE ON tombstone
    FOR EACH ROW WHEN (OLD.gone) EXECUTE FUNCTION refuse('tombstones stay');

-- Every tombstone has the record of its pruning.
INSERT INTO pruning (at, actor, reason, ended_before, works)
SELECT t.pruned_at, '{"type":"system","id":"unknown"}', 'not recorded', t.pruned_at, count(*)
FROM tombstone t WHERE NOT EXISTS (SELECT 1 FROM pruning p WHERE p.at = t.pruned_at) GROUP BY t.pruned_at;
