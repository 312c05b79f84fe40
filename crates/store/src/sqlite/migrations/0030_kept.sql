-- No early answer counts for an approval any more: nobody reads what it once said about that.

ALTER TABLE kept DROP COLUMN approves;
