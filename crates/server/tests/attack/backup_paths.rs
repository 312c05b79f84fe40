//! A backup is a file that the daemon writes for a caller: no request makes it write elsewhere, overwrite a
//! file, follow a link, or make the file readable for others.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use serde_json::json;

use crate::bed::Bed;

async fn bed(folder: &Path) -> Bed {
    let bed = Bed::sqlite_with(&format!("backups = {folder:?}")).await;
    bed.admin().ingest("a").await;
    bed
}

fn files(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut files: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_backup_is_never_written_outside_its_folder() {
    let home = tempfile::tempdir().unwrap();
    let (folder, ssh) = (home.path().join("backups"), home.path().join(".ssh"));
    fs::create_dir(&folder).unwrap();
    fs::create_dir(&ssh).unwrap();
    fs::create_dir(folder.join("inner")).unwrap();
    let bed = bed(&folder).await;
    let admin = bed.admin();
    let absolute = ssh.join("authorized_keys");
    let names = [
        "../.ssh/authorized_keys",
        absolute.to_str().unwrap(),
        "inner/../../.ssh/authorized_keys",
        "inner/x.db",
        "inner",
        "..",
        ".",
        "",
        ".bashrc",
        "x.db\0.txt",
        "file:x.db?mode=memory",
        ":memory:/x",
        "a\\b.db",
        "x.db-wal",
    ];
    for name in names {
        let reply = admin.post("/v1/admin/backup", json!({ "name": name })).await;
        reply.problem(400, "invalid");
    }
    // The field that once took any path is unknown now.
    let reply = admin.post("/v1/admin/backup", json!({ "path": absolute, "name": "x.db" })).await;
    assert!(reply.status.is_client_error(), "{}", reply.body);
    assert_eq!(files(&ssh), Vec::<String>::new());
    assert_eq!(files(&folder), ["inner"]);
    assert_eq!(files(&folder.join("inner")), Vec::<String>::new());
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_follows_no_link_and_overwrites_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("backups");
    fs::create_dir(&folder).unwrap();
    let secret = home.path().join("authorized_keys");
    fs::write(&secret, "mine").unwrap();
    symlink(&secret, folder.join("link.db")).unwrap();
    symlink(home.path().join("not_there_yet"), folder.join("dangling.db")).unwrap();
    fs::write(folder.join("old.db"), "an older copy").unwrap();
    let bed = bed(&folder).await;
    for name in ["link.db", "dangling.db", "old.db"] {
        let reply = bed.admin().post("/v1/admin/backup", json!({ "name": name })).await;
        reply.problem(400, "invalid");
    }
    assert_eq!(fs::read(&secret).unwrap(), b"mine");
    assert_eq!(fs::read(folder.join("old.db")).unwrap(), b"an older copy");
    assert!(!home.path().join("not_there_yet").exists());
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path()).await;
    let report = bed.admin().post("/v1/admin/backup", json!({ "name": "copy.db" })).await.expect(200);
    let copy = folder.path().join("copy.db");
    assert_eq!(report["path"].as_str(), copy.canonicalize().unwrap().to_str());
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files(folder.path()), ["copy.db"]);
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_machine_or_a_tenants_admin_makes_no_backup() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path()).await;
    let body = || json!({ "name": "copy.db" });
    let machine = bed.client("machine", &["admin"], None).await;
    machine.post("/v1/admin/backup", body()).await.problem(403, "person_required");
    let of_one_tenant = bed.client("person", &["admin"], Some(&["acme"])).await;
    assert_eq!(of_one_tenant.post("/v1/admin/backup", body()).await.status.as_u16(), 403);
    let operator = bed.client("person", &["operate", "view", "payload"], None).await;
    assert_eq!(operator.post("/v1/admin/backup", body()).await.status.as_u16(), 403);
    assert_eq!(files(folder.path()), Vec::<String>::new());
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn without_a_configured_folder_there_are_no_backups() {
    let bed = Bed::sqlite().await;
    let reply = bed.admin().post("/v1/admin/backup", json!({ "name": "copy.db" })).await;
    reply.problem(400, "invalid");
    assert!(reply.body["detail"].as_str().unwrap().contains("--backups"), "{}", reply.body);
    bed.server.close().await.unwrap();
}
