-- A work must stand where its last event left it. That its end stays, and that nothing takes it back to an earlier event,
-- follows: an event moves only from where the one before it left the work, and no move leads out of an end. So the row's
-- own triggers, which read its old version once more, go.
DROP TRIGGER work_end_stays ON work;
DROP TRIGGER work_moves_by_events ON work;

CREATE OR REPLACE FUNCTION work_is_its_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken uuid;
BEGIN
    SELECT n.id INTO broken FROM saved n
    WHERE (SELECT e.seq = n.seq AND e.to_state = n.state AND e.hash = n.head FROM event e
        WHERE e.work = n.id ORDER BY e.seq DESC LIMIT 1) IS NOT TRUE LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% is not what its last event says', broken
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
