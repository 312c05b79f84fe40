-- Who may talk to the ledger: no part of the event-sourced state. Secrets are stored as SHA-256 only.

CREATE TABLE credential (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind = 'person' OR kind = 'machine'),
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    scopes TEXT NOT NULL,
    tenants TEXT, -- NULL: all
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    created_by TEXT NOT NULL
) STRICT;
