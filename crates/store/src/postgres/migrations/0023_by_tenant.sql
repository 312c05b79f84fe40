-- Lists of one tenant are found by its name first: however many rows others have, they are not read.

CREATE INDEX status_tenant ON status (tenant, state, work);
CREATE INDEX wait_tenant ON wait (tenant, opened_at, id) WHERE state = 'open';
CREATE INDEX command_tenant ON command_status (tenant, command);
