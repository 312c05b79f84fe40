//! A ledger file that every user of the machine can read exposes the key of all tokens.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};

use crate::bed::ADMIN;

async fn open(path: &Path, allow_readable_secrets: bool) -> Result<(), String> {
    let db = Some(path.to_str().unwrap().to_owned());
    let overlay = Overlay { db, allow_readable_secrets, ..Overlay::default() };
    let config = Config::parse("tenure.toml", "", overlay).unwrap();
    let admin = AdminToken::Given(Secret::given(ADMIN.to_owned()));
    let server = Server::open(config, admin).await.map_err(|error| error.to_string())?;
    server.close().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_ledger_file_that_everybody_can_read_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    open(&path, false).await.unwrap();
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    set(0o644);
    let refused = open(&path, false).await.unwrap_err();
    assert!(refused.contains("ledger.db") && refused.contains("chmod 600"), "{refused}");
    open(&path, true).await.unwrap();
    set(0o640);
    open(&path, false).await.unwrap();
}
