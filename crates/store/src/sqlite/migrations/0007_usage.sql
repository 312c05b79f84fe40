-- What an attempt used, as the verb that ended it says: a JSON list, NULL where it says nothing.

ALTER TABLE attempt ADD COLUMN usage TEXT;
