-- Whose intake of new works is paused: no part of the event-sourced state. Who did it, when and why stays; the last line
-- of a tenant says how it stands.

CREATE TABLE intake_change (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL, -- empty: every tenant
    paused boolean NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX intake_change_of ON intake_change (tenant, number);

CREATE TRIGGER intake_change_stays BEFORE UPDATE OR DELETE ON intake_change
    FOR EACH ROW EXECUTE FUNCTION refuse('changes of the intake stay');
CREATE TRIGGER intake_change_never_emptied BEFORE TRUNCATE ON intake_change
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('changes of the intake stay');
