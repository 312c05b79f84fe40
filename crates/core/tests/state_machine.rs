//! The committed page is generated from the table.
#![expect(clippy::disallowed_methods, reason = "the rules read no files; this test of their page does")]

use std::{env, fs, path::Path};

use tenure_core::{State, state_machine};

#[test]
fn the_committed_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state_machine.md");
    let page = state_machine::markdown();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs/ can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/state_machine.md differs from the table. Rewrite it with `UPDATE_DOCS=1 cargo test -p \
         tenure-core --test state_machine`, and commit it."
    );
}

#[test]
fn the_guide_has_every_state() {
    let guide = include_str!("../../../docs/states.md");
    for state in State::ALL {
        assert!(guide.contains(&format!("`{state}`")), "docs/states.md has no row for `{state}`: add one");
    }
}
