//! The same calls without a socket: a ledger embedded in a program, with one call of each caller at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tenure_embed::prelude::*;

use super::CONNECTIONS;
use crate::{Result, cases::at_once, site::Place, stats::Rate};

pub struct Embedded {
    tenure: Tenure,
    next: Arc<AtomicU64>,
}

impl Embedded {
    pub async fn open(place: &Place) -> Result<Self> {
        let db = match place {
            Place::Sqlite(path) => path.to_str().ok_or("a folder whose name is not UTF-8")?,
            Place::Postgres(url) => url,
        };
        Ok(Self { tenure: Tenure::open(db).await?, next: Arc::default() })
    }

    /// One work item in each call, as over HTTP.
    pub async fn single(&self, slice: Duration) -> Result<Rate> {
        let (client, next) = (self.tenure.client(), self.next.clone());
        at_once(CONNECTIONS, slice, move |_, _| {
            let (client, next) = (client.clone(), next.clone());
            async move {
                let source = Source::manual(&format!("bench-{}", next.fetch_add(1, Ordering::Relaxed)));
                let input = json!({ "prompt": "Summarise the thread and file it.", "thread": 4711 });
                let work = Ingest::new(source, "single", Disposition::Rerunnable, input);
                Ok(client.ingest(&work).await.map(drop)?)
            }
        })
        .await
    }

    pub async fn close(self) -> Result<()> {
        Ok(self.tenure.close().await?)
    }
}
