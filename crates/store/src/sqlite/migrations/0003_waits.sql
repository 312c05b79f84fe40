-- The open waits, in the order in which they are listed, and by kind with their deadlines.

CREATE INDEX wait_open ON wait (opened_at, id) WHERE state = 'open';
CREATE INDEX wait_kind ON wait (kind, deadline_at) WHERE state = 'open';
