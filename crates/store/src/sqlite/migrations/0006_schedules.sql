-- Works that come by themselves: no part of the event-sourced state. What a run makes is a work like any other.
-- The core's record is the body; what stands beside it is what it is found by.

CREATE TABLE schedule (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due_at INTEGER, -- when somebody must look at it; NULL: never
    body TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (due_at) WHERE due_at IS NOT NULL;

-- Who did what to a schedule, and why. It outlives the schedule.
CREATE TABLE schedule_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    act TEXT NOT NULL,
    reason TEXT NOT NULL,
    plan TEXT -- what it was set to
) STRICT;

CREATE INDEX schedule_change_of ON schedule_change (tenant, name, number);

CREATE TRIGGER schedule_change_stays BEFORE UPDATE ON schedule_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of schedules stay');
END;

CREATE TRIGGER schedule_change_kept BEFORE DELETE ON schedule_change
BEGIN
    SELECT raise(ROLLBACK, 'changes of schedules stay');
END;
