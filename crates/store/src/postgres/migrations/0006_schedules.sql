-- Works that come by themselves: no part of the event-sourced state. What a run makes is a work like any other.
-- The core's record is the body; what stands beside it is what it is found by.

CREATE TABLE schedule (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    due_at bigint, -- when somebody must look at it; NULL: never
    body text NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE INDEX schedule_due ON schedule (due_at) WHERE due_at IS NOT NULL;

-- Who did what to a schedule, and why. It outlives the schedule.
CREATE TABLE schedule_change (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    act text NOT NULL,
    reason text NOT NULL,
    plan text -- what it was set to
);

CREATE INDEX schedule_change_of ON schedule_change (tenant, name, number);

CREATE TRIGGER schedule_change_stays BEFORE UPDATE OR DELETE ON schedule_change
    FOR EACH ROW EXECUTE FUNCTION refuse('changes of schedules stay');
CREATE TRIGGER schedule_change_never_emptied BEFORE TRUNCATE ON schedule_change
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('changes of schedules stay');
