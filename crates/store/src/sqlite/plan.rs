//! Query plans, for tests that require indexes.

use rusqlite::{Connection, params_from_iter};

use super::migrate;

/// The tables of an empty ledger.
pub(super) fn tables() -> Connection {
    let mut conn = Connection::open_in_memory().unwrap();
    migrate::run(&mut conn, migrate::MIGRATIONS, 0).unwrap();
    conn
}

/// The steps of a statement's plan, one line each.
pub(super) fn plan(conn: &Connection, sql: &str) -> String {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let bound = vec![1; explain.parameter_count()];
    let steps = explain.query_map(params_from_iter(bound), |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect::<Vec<String>>().join("\n")
}
