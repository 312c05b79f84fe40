-- A lane is what is ready of one tenant, kind and source system: a claim reads the lanes of its own tenants only.

CREATE TABLE ready_by_tenant (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    system TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    work BLOB NOT NULL,
    bound TEXT,
    PRIMARY KEY (tenant, kind, system, priority, created_at, work)
) STRICT, WITHOUT ROWID;

INSERT INTO ready_by_tenant SELECT r.tenant, l.kind, l.system, r.priority, r.created_at, r.work, r.bound
FROM ready r JOIN lane l ON l.id = r.lane;

DROP TABLE ready;
DROP TABLE lane;
ALTER TABLE ready_by_tenant RENAME TO ready;

-- Anybody may give any correlation or workflow: of those that a tenant names, only its own works are read.
DROP INDEX work_correlation;
DROP INDEX work_workflow;
CREATE INDEX work_correlation ON work (correlation_id, tenant, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX work_workflow ON work (workflow_id, tenant, id) WHERE workflow_id IS NOT NULL;

-- Lookups that are due, for the workers of a tenant that make them.
CREATE INDEX command_lookup ON command (tenant, due_at, id) WHERE duty = 2 AND due_at IS NOT NULL;
