-- Whose intake of new works is paused: no part of the event-sourced state. Who did it, when and why stays; the last line
-- of a tenant says how it stands.

CREATE TABLE intake_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL, -- empty: every tenant
    paused INTEGER NOT NULL CHECK (paused = 0 OR paused = 1),
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX intake_change_of ON intake_change (tenant, number);

CREATE TRIGGER intake_change_stays BEFORE UPDATE ON intake_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of the intake stay');
END;

CREATE TRIGGER intake_change_kept BEFORE DELETE ON intake_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of the intake stay');
END;
