-- A lane is what is ready of one tenant, kind and source system: a claim reads the lanes of its own tenants only. Names are
-- compared by their bytes, which costs least.

CREATE TABLE ready_by_tenant (
    created_at bigint NOT NULL,
    work uuid NOT NULL,
    priority smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    system text COLLATE "C" NOT NULL,
    session text,
    bound text
) WITH (autovacuum_vacuum_scale_factor = 0.05);

INSERT INTO ready_by_tenant (created_at, work, priority, tenant, kind, system, session, bound)
SELECT r.created_at, r.work, r.priority, r.tenant, l.kind, l.system, r.session, r.bound
FROM ready r JOIN lane l ON l.id = r.lane;

DROP TABLE ready;
DROP TABLE lane;
ALTER TABLE ready_by_tenant RENAME TO ready;

ALTER TABLE ready ADD PRIMARY KEY (tenant, kind, system, priority, created_at, work);
CREATE UNIQUE INDEX ready_session ON ready (tenant, session) WHERE session IS NOT NULL;

-- Anybody may give any correlation or workflow: of those that a tenant names, only its own works are read.
DROP INDEX work_correlation;
DROP INDEX work_workflow;
CREATE INDEX work_correlation ON work (correlation_id, tenant, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id, tenant, id) WHERE workflow_id IS NOT NULL;

-- Lookups that are due, for the workers of a tenant that make them.
CREATE INDEX command_lookup ON command_status (tenant, due_at, command) WHERE duty = 2 AND due_at IS NOT NULL;
