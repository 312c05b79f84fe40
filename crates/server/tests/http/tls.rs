//! The daemon over TLS, and a certificate that cannot be used.

use std::{net::TcpListener, process::Command, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject},
};
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};
use tokio::sync::oneshot;

use crate::bed::ADMIN;

async fn server(folder: &std::path::Path) -> Server {
    let overlay = Overlay {
        db: Some(":memory:".into()),
        tls_cert: Some(folder.join("cert.pem")),
        tls_key: Some(folder.join("key.pem")),
        ..Overlay::default()
    };
    let config = Config::parse("tenure.toml", "", overlay).unwrap();
    Server::open(config, AdminToken::Given(Secret::given(ADMIN.into()))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder.path())
        .output()
        .expect("openssl makes a certificate");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server(folder.path()).await.serve(listener, async move { _ = stopped.await }));
    let cert = CertificateDer::from_pem_file(folder.path().join("cert.pem")).unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut roots = RootCertStore::empty();
        roots.add(cert).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut socket = StreamOwned::new(client, std::net::TcpStream::connect(address).unwrap());
        use std::io::{Read, Write};
        write!(socket, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // The end may come without a close notice; only the response counts.
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_none_is_said_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = server(folder.path()).await.serve(listener, std::future::pending()).await.unwrap_err();
    assert!(failed.to_string().contains("check tls.cert and tls.key"), "{failed}");
}
