//! What a lost holder puts at risk, on the command line.

use crate::bed::Bed;

#[test]
fn victims_are_foretold_on_a_file_without_a_daemon() {
    foretold(&Bed::embedded());
}

#[test]
fn victims_are_foretold_on_sqlite() {
    foretold(&Bed::sqlite());
}

#[test]
fn victims_are_foretold_on_postgres() {
    foretold(&Bed::postgres());
}

fn foretold(bed: &Bed) {
    let title = "Refund order 7";
    let ingest =
        ["ingest", "manual", "r7", "--kind", "refund", "--disposition", "owner_bound", "--title", title];
    let id = bed.run(&ingest).ends(0).out.trim().to_owned();
    let nobody = bed.run(&["victims"]).ends(0);
    assert!(nobody.out.is_empty() && nobody.err.contains("Nothing is at risk"), "{}", nobody.err);
    bed.run(&["claim", "--worker", "cleo", &id, "-o", "json"]).json();

    assert_eq!(bed.run(&["victims", "-o", "json"]).json(), serde_json::json!([]), "its holder is alive");
    let victims = bed.run(&["victims", "--all", "--worker", "cleo", "-o", "json"]).json();
    assert_eq!((&victims[0]["work"], &victims[0]["title"]), (&id.as_str().into(), &title.into()));
    assert_eq!(victims[0]["if_silent"]["verdict"], "leave");
    let table = bed.run(&["victims", "--all"]).ends(0).out;
    assert!(table.contains(title) && table.contains("If cleo stays silent, in"), "{table}");

    let shown = bed.run(&["show", &id]).ends(0).out;
    assert!(shown.contains("If silent:") && shown.contains(title), "{shown}");
    let explained = bed.run(&["explain", &id]).ends(0).out;
    assert!(
        explained.lines().nth(1).is_some_and(|line| line.starts_with("If cleo stays silent")),
        "{explained}"
    );

    assert_eq!(
        bed.run(&["recover", "victims", "--all", "-o", "json"]).json()[0]["work"],
        id.as_str(),
        "`victims` is short for it"
    );
    planned(bed);
}

/// Its holder may still renew: a plan does nothing, and neither does applying it.
fn planned(bed: &Bed) {
    let table = bed.run(&["recover", "plan"]).ends(0);
    assert!(table.out.is_empty() && table.err.contains("Recovery would do nothing"), "{}", table.err);
    let plan = bed.run(&["recover", "plan", "-o", "json"]).json();
    assert_eq!((&plan["rows"], &plan["complete"]), (&serde_json::json!([]), &true.into()));
    let id = plan["id"].as_str().unwrap();
    let report = bed.run(&["recover", "plan", "--report"]).ends(0).out;
    assert!(report.starts_with(&format!("# Recovery plan {id}\n")), "{report}");

    let forged = ["recover", "apply", "p_00000000", "--reason", "x", "--yes"];
    let stale = bed.run(&forged).ends(5);
    assert!(stale.out.is_empty() && stale.err.contains(id), "{}", stale.err);
    bed.run(&["recover", "apply", id, "--worker", "nobody", "--reason", "x", "--yes"]).ends(0);
    bed.run(&["recover", "apply", id]).ends(2);
    let nothing = bed.run(&["recover", "apply", &id[..8], "--reason", "x", "--yes"]).ends(0);
    assert!(nothing.err.contains("Nothing in this plan"), "{}", nothing.err);
    bed.run(&["recover", "apply", &id[..4], "--reason", "x", "--yes"]).ends(5);
}
