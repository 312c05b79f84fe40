//! The provider that workers call: it records its callers and their dispatches.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_api::wire::{Command, CommandId, Timestamp};
use tenure_testkit::{Provider, Reply};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{history::now_us, run::Effect};

pub struct Shop {
    provider: Provider,
}

#[derive(Serialize, Deserialize)]
struct Order {
    at_us: u64,
    command: CommandId,
    fence: u64,
    dispatched_at: Timestamp,
}

impl Shop {
    pub fn open() -> Self {
        Self { provider: Provider::always(Reply::json(200, "{}")) }
    }

    /// Makes the call that a dispatch permits, and returns the provider's id.
    pub async fn call(&self, command: &Command) -> Option<String> {
        let dispatch = command.dispatch.as_ref()?;
        let (fence, dispatched_at) = (dispatch.fence, dispatch.at);
        let order = Order { at_us: now_us(), command: command.id.clone(), fence, dispatched_at };
        let (key, body) = (&command.idempotency_key, json!(order).to_string());
        let request = format!(
            "POST / HTTP/1.1\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.provider.address()).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.starts_with("HTTP/1.1 200").then(|| external_id(key))
    }

    pub fn knows(&self, key: &str) -> bool {
        self.provider.calls().iter().any(|call| call.header("idempotency-key") == Some(key))
    }

    pub fn effects(&self) -> Vec<Effect> {
        let calls = self.provider.calls();
        let read = calls.iter().map(|call| {
            let order: Order = serde_json::from_slice(&call.body).expect("only workers of this run call");
            Effect {
                at_us: order.at_us,
                key: call.header("idempotency-key").unwrap_or_default().to_owned(),
                command: order.command,
                fence: order.fence,
                dispatched_at: order.dispatched_at,
            }
        });
        read.collect()
    }
}

/// The provider returns the same id for the same key, however often it is called.
pub fn external_id(key: &str) -> String {
    format!("order-{key}")
}
