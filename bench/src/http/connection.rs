//! One persistent connection to the daemon: request, response, next request.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::daemon::Daemon;
use crate::Result;

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    token: String,
}

impl Connection {
    pub async fn open(daemon: &Daemon) -> Result<Connection> {
        Connection::of(daemon, &daemon.token).await
    }

    /// With another credential.
    pub async fn of(daemon: &Daemon, token: &str) -> Result<Connection> {
        let stream = TcpStream::connect(&daemon.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // A broken connection is reported by the request that waits for it.
        tokio::spawn(connection);
        Ok(Connection { sender, host: daemon.address.clone(), token: format!("Bearer {token}") })
    }

    pub async fn get(&mut self, path: &str) -> Result<(StatusCode, Bytes)> {
        self.send("GET", path, Bytes::new()).await
    }

    /// Posts JSON; a response other than 2xx is an error with its text.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Bytes> {
        let (status, answer) = self.send("POST", path, serde_json::to_vec(body)?.into()).await?;
        if status.is_success() {
            return Ok(answer);
        }
        Err(format!("POST {path} was answered with {status}: {}", String::from_utf8_lossy(&answer)).into())
    }

    async fn send(&mut self, method: &str, path: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", &self.token)
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
