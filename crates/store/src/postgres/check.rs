//! Faults that only the database can see. Each statement answers with sentences; none is fine.

pub(super) const CHECKS: &[&str] = &[
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' and its status row disagree' \
     FROM work w LEFT JOIN status s ON s.work = w.id \
     WHERE s.work IS NULL OR (s.state, s.due_at, s.tenant, s.session, s.created_at) IS DISTINCT FROM \
     (w.state, w.due_at, w.tenant, w.session, w.created_at) LIMIT 100",
    "SELECT 'w_' || replace(s.work::text, '-', '') || ' has several status rows' \
     FROM status s GROUP BY s.work HAVING count(*) > 1 LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' is not what it was ingested as' \
     FROM (SELECT work.*, work.spec::json AS said FROM work) w \
     WHERE (w.tenant, w.system, w.source_id, w.run_id, w.kind, w.session, w.workflow_id, w.generation::text, \
     w.priority::text, w.created_at::text, 'w_' || replace(w.parent::text, '-', ''), \
     coalesce(w.correlation_id, 'w_' || replace(w.id::text, '-', ''))) IS DISTINCT FROM \
     (w.said ->> 'tenant', w.said #>> '{source,system}', w.said #>> '{source,id}', \
     coalesce(w.said #>> '{source,run_id}', ''), w.said ->> 'kind', w.said ->> 'session', \
     w.said #>> '{workflow,id}', w.said ->> 'generation', w.said ->> 'priority', w.said ->> 'created_at', \
     w.said ->> 'parent', w.said ->> 'correlation_id') LIMIT 100",
    "SELECT 'w_' || replace(s.work::text, '-', '') || ' has a status row and no work' \
     FROM status s WHERE NOT EXISTS (SELECT 1 FROM work w WHERE w.id = s.work) LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' is not what its last event says' \
     FROM work w LEFT JOIN event e ON e.work = w.id AND e.seq = w.seq \
     WHERE (e.to_state, e.hash) IS DISTINCT FROM (w.state, w.head) \
     OR EXISTS (SELECT 1 FROM event later WHERE later.work = w.id AND later.seq > w.seq) LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' does not count its open waits right' \
     FROM work w WHERE w.open_waits <> \
     (SELECT count(*) FROM wait t WHERE t.work = w.id AND t.state = 'open') LIMIT 100",
    "SELECT 'w_' || replace(coalesce(r.work, c.id)::text, '-', '') || CASE WHEN r.work IS NULL \
     THEN ' is claimable and not on the queue' ELSE ' is on the queue and not claimable' END \
     FROM ready r FULL JOIN ( \
     SELECT w.*, l.id AS lane FROM work w JOIN lane l ON l.system = w.system AND l.kind = w.kind \
     WHERE w.state = 0 AND (w.session IS NULL OR NOT EXISTS (SELECT 1 FROM status o \
     WHERE o.tenant = w.tenant AND o.session = w.session AND o.session IS NOT NULL \
     AND (o.state = 1 OR o.state = 8 OR o.state = 9)) AND w.id = (SELECT h.work FROM status h \
     WHERE h.tenant = w.tenant AND h.session = w.session AND h.session IS NOT NULL \
     AND (h.state = 0 OR h.state = 7) ORDER BY h.created_at, h.work LIMIT 1)) \
     ) c ON c.id = r.work \
     WHERE r.work IS NULL OR c.id IS NULL OR (r.lane, r.priority, r.created_at, r.tenant, r.session, r.bound) \
     IS DISTINCT FROM (c.lane, c.priority, c.created_at, c.tenant, c.session, c.bound) LIMIT 100",
    "SELECT 'w_' || replace(t.work::text, '-', '') || ' waits for an answer that is kept for it' \
     FROM kept k JOIN wait t ON t.tenant = k.tenant AND t.reference = k.reference \
     WHERE t.state = 'open' AND k.kept_at + 86400000 > t.opened_at \
     AND (t.kind <> 'approval' OR k.actor::json ->> 'type' = 'person') LIMIT 100",
    "SELECT 'c_' || replace(c.id::text, '-', '') || ' and its status row disagree' \
     FROM command c LEFT JOIN command_status s ON s.command = c.id \
     WHERE s.command IS NULL OR (s.state, s.due_at, s.tenant, s.work) IS DISTINCT FROM \
     (c.state, c.due_at, c.tenant, c.work) LIMIT 100",
    "SELECT 'c_' || replace(c.id::text, '-', '') || ' is not what it was reserved as' \
     FROM (SELECT command.*, command.spec::json AS said FROM command) c \
     WHERE (c.tenant, c.tool, c.target, c.executor, encode(c.key, 'hex'), encode(c.input_hash, 'hex')) \
     IS DISTINCT FROM (c.said ->> 'tenant', c.said ->> 'tool', c.said ->> 'target', c.said ->> 'executor', \
     c.said ->> 'key', c.said ->> 'input_hash') LIMIT 100",
    "SELECT 'c_' || replace(s.command::text, '-', '') || ' has a status row and no command' \
     FROM command_status s WHERE NOT EXISTS (SELECT 1 FROM command c WHERE c.id = s.command) LIMIT 100",
    "SELECT 'w_' || replace(a.work::text, '-', '') || ' has the end of an attempt that nobody claimed' \
     FROM attempt_end a WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.work = a.work AND e.fence = a.fence \
     AND e.request IS NOT NULL) LIMIT 100",
    "SELECT 'event ' || e.seq || ' of w_' || replace(e.work::text, '-', '') || ' is not found by its claim' \
     FROM event e WHERE (e.type = 'claimed') <> (e.request IS NOT NULL) \
     OR e.data !~ ('\"request\":' || e.request || '[,}]') LIMIT 100",
    "SELECT 'event ' || e.seq || ' of w_' || replace(e.work::text, '-', '') || ' belongs to no work' \
     FROM event e WHERE NOT EXISTS (SELECT 1 FROM work w WHERE w.id = e.work) LIMIT 100",
];
