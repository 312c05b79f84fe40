//! Sessions of work items.

use rusqlite::{Row, params};
use tenure_core::{WorkId, records::SessionView};

use super::{
    SqliteStore,
    load::{SESSION_HEAD, SESSION_HOLDER},
    row,
};
use crate::store::{SessionStore, StoreFuture};

impl SessionStore for SqliteStore {
    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        let key = (tenant.to_owned(), session.to_owned());
        self.read(move |reader| {
            let id = |row: &Row<'_>| Ok(WorkId(row::uuid(row, 0)?));
            let holder = reader.all(SESSION_HOLDER, params![key.0, key.1], id)?.pop();
            let head = reader.all(SESSION_HEAD, params![key.0, key.1], id)?.pop();
            Ok(SessionView { holder, head, unsure: false })
        })
    }
}
