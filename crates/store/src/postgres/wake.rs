//! Hints between processes: a process that adds to the queue notifies the others. Nothing depends on a hint.
//!
//! NOTIFY is never used in a group's own transaction, because its lock would serialise the commits of all processes. It
//! runs here, on the listening connection, at most once at a time.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::Shared;

const CHANNEL: &str = "tenure_ready";
/// A trigger of the intake table sends this notification.
const INTAKE: &str = "tenure_intake";
/// The pause between two hints, and between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);
const AGAIN: Duration = Duration::from_secs(1);

/// Listens and notifies until the ledger is closed.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut closed = shared.closed.subscribe();
    loop {
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => return,
            () = connected(&shared) => {}
        }
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Runs on one connection, until it is lost or the server changes.
async fn connected(shared: &Shared) {
    let Ok((client, mut connection)) = shared.connector.listener().await else { return };
    let (heard, mut notices) = mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(note) = message {
                let _gone = heard.send((note.channel() == INTAKE, note.process_id()));
            }
        }
    });
    let Ok((_, server)) = shared.connector.meet(&client).await else { return };
    let Some(own) = listen(&client).await else { return };
    let mut servers = shared.connector.servers().news();
    loop {
        tokio::select! {
            () = async { drop(servers.wait_for(|number| *number != server).await) } => break,
            note = notices.recv() => match note {
                Some((true, _)) => shared.intake.notify_one(),
                Some((false, process)) if process == own => {}
                Some(_) => shared.nudge(),
                None => break,
            },
            () = shared.announced.notified() => {
                if client.batch_execute(&format!("NOTIFY {CHANNEL}")).await.is_err() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    driver.abort();
}

/// The process id of this connection's backend, so that its own hints can be ignored. A hint does not have to be
/// durable.
async fn listen(client: &Client) -> Option<i32> {
    let settings = format!("SET synchronous_commit = off; LISTEN {CHANNEL}; LISTEN {INTAKE}");
    client.batch_execute(&settings).await.ok()?;
    client.query_one("SELECT pg_backend_pid()", &[]).await.ok()?.try_get(0).ok()
}
