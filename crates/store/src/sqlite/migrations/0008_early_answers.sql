-- Whether an early answer counts for an approval too: what the credential of whoever gave it said then.

ALTER TABLE kept ADD COLUMN approves INTEGER NOT NULL DEFAULT 0;
