-- A cancelled command that was sent before takes a receipt that comes late: it happened. Otherwise what happened, and what
-- never will, stays; the rest moves by events.

DROP TRIGGER command_moved;

CREATE TRIGGER command_moved AFTER UPDATE OF state, seq, last_event ON command
WHEN NEW.seq < OLD.seq
    OR (NEW.state <> OLD.state AND (NEW.seq = OLD.seq OR OLD.state = 5 OR (OLD.state = 7 AND NEW.state <> 5)))
    OR NOT EXISTS (
        SELECT 1 FROM event WHERE position = NEW.last_event AND work = NEW.work AND seq = NEW.seq
        AND type >= 'command_' AND type < 'command`'
    )
BEGIN
    SELECT raise(ROLLBACK, 'what happened, and what never will, stays so')
    WHERE NEW.state <> OLD.state AND (OLD.state = 5 OR (OLD.state = 7 AND NEW.state <> 5));
    SELECT raise(ROLLBACK, 'a command moves only by events');
END;
