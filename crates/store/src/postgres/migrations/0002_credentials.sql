-- Who may talk to the ledger: no part of the event-sourced state. Secrets are stored as SHA-256 only.

CREATE TABLE credential (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL,
    hash bytea NOT NULL UNIQUE,
    scopes text NOT NULL,
    tenants text, -- NULL: all
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    created_by text NOT NULL,
    CONSTRAINT credential_kind CHECK (kind = 'person' OR kind = 'machine'),
    CONSTRAINT credential_hash CHECK (length(hash) = 32)
);
