//! Sessions of work items.

use tenure_core::records::SessionView;

use super::{Postgres, connection::params, load::SESSIONS, row};
use crate::store::{SessionStore, StoreFuture};

impl SessionStore for Postgres {
    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        Box::pin(async move {
            let rows = self.points.query(SESSIONS, params![vec![tenant], vec![session]]).await?;
            Ok(rows.first().map(row::session).transpose()?.unwrap_or_default())
        })
    }
}
