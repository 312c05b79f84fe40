-- Beside each row that no log tells of is a MAC under the ledger's key. Rows that are here already get theirs from the
-- migration itself, once; a row that has one stays as it is.

ALTER TABLE credential ADD COLUMN mac BLOB;
ALTER TABLE kept ADD COLUMN mac BLOB;
ALTER TABLE pruning ADD COLUMN mac BLOB;
ALTER TABLE tombstone ADD COLUMN mac BLOB;
ALTER TABLE link ADD COLUMN work BLOB; -- NULL: pruned before this migration
ALTER TABLE link ADD COLUMN mac BLOB;

DROP TRIGGER pruning_stays;
CREATE TRIGGER pruning_stays BEFORE UPDATE ON pruning WHEN OLD.mac IS NOT NULL
BEGIN
    SELECT raise(ROLLBACK, 'records of pruning stay');
END;

DROP TRIGGER tombstone_stays;
CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone WHEN OLD.mac IS NOT NULL
BEGIN
    SELECT raise(ROLLBACK, 'tombstones stay');
END;

-- Every tombstone has the record of its pruning.
INSERT INTO pruning (at, actor, reason, ended_before, works)
SELECT t.pruned_at, json_object('type', 'system', 'id', 'unknown'), 'not recorded', t.pruned_at, count(*)
FROM tombstone t WHERE NOT EXISTS (SELECT 1 FROM pruning p WHERE p.at = t.pruned_at) GROUP BY t.pruned_at;
