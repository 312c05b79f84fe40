-- A cancelled command that was sent before takes a receipt that comes late: it happened. Otherwise what happened, and what
-- never will, stays.

DROP TRIGGER command_end_stays ON command;

CREATE TRIGGER command_end_stays BEFORE UPDATE ON command
    FOR EACH ROW WHEN (NEW.state <> OLD.state AND (OLD.state = 5 OR (OLD.state = 7 AND NEW.state <> 5)))
    EXECUTE FUNCTION refuse('what happened, and what never will, stays so');
