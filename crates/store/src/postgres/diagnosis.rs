//! The server's description of itself.

use tokio_postgres::Client;

use super::{Postgres, fault::describe, migrate};
use crate::{
    Error,
    diagnosis::{Diagnosis, Schema, Setting},
    store::{DiagnosisStore, StoreFuture},
};

const FACTS: &str = "SELECT current_setting('server_version'), \
     (SELECT coalesce(max(number), 0) FROM migration)";

impl DiagnosisStore for Postgres {
    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(async move {
            // A new connection has the server's current settings; existing ones may have older values.
            let session = self.points.own_session().await?;
            let row =
                session.within(session.client.query_one(FACTS, &[])).await.map_err(|fault| fault.error())?;
            let (version, applied): (String, i32) = (row.get(0), row.get(1));
            let known = migrate::MIGRATIONS.last().map_or(0, |last| last.number);
            Ok(Diagnosis {
                engine: "postgres",
                version,
                schema: Some(Schema { known: known as u32, applied: applied as u32 }),
                settings: session.within(durability(&session.client)).await.map_err(|fault| fault.error())?,
                wal: None,
                file: None,
                backup: None,
            })
        })
    }
}

/// The settings that make an acknowledged commit durable.
pub(super) async fn durability(client: &Client) -> Result<Vec<Setting>, Error> {
    let row = client
        .query_one(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
             current_setting('synchronous_commit')",
            &[],
        )
        .await
        .map_err(|error| Error::Unavailable(describe(&error)))?;
    Ok(vec![
        Setting::new("fsync", row.get(0), &["on"]),
        Setting::new("full_page_writes", row.get(1), &["on"]),
        Setting::new("synchronous_commit", row.get(2), &["on", "remote_apply"]),
    ])
}
